"""What the policy wrote: recorded texts as samples, those worth reading, and phrases that earn a reward."""
