"""What every process of ours does, whatever its work: signals, forks, pauses between tries, named points of a crash."""
