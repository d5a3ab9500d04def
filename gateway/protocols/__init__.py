"""Wire protocols, without I/O: request objects in, turns out; turn items in, frames out. Ids and time are arguments."""
