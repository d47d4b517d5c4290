"""Jobs of ordinary users on a real Slurm of three machines."""
