"""All screens of a run agree with each other, and with what is known of the run because it was made up."""
