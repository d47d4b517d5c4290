"""Signs that a training is ill, found in closed rows: sequential tests with a measured false-alarm rate, and facts."""
