"""The live world: the same protocols on real sockets, with asyncio.

`carrycast.node.api.client.connect` is for applications, `carrycast.node.node.LiveNode` runs a node within a program.
Nothing is imported here, so that the processes of processors start with what they need and no more.
"""
