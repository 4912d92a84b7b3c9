"""What live nodes do, minute by minute, while they do it: a stream over the traces that they write.

`minutes` has what is counted in a minute, for the stream and for the batch job alike; `step` takes the files that are
new into account; `folder` keeps tables and state so that each file counts once, however often the watch is killed;
`stream` runs it on Structured Streaming.
"""
