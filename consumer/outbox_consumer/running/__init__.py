"""Where and how handlers run, from the stored payload to the end that `apply` commits."""
