"""Where protocols other than driftcast's own come in: a folder for each, loaded only by a node that is told to open it.

A folder offers `configured(table, place)`: a node's configuration becomes an `Opener` (`driftcast.live.gateways`).
"""
