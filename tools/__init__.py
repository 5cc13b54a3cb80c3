"""Most commands beyond the four runs, each with a folder of its own or beside what it shares."""
