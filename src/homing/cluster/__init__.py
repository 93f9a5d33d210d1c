"""Who is alive: a fixed list by default, or what a Serf agent says."""
