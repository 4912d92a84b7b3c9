"""Messages that are longer than a frame."""


def split_message(size_bytes: int, overhead_bytes: int, frame_bytes: int, fragment_bytes: int) -> list[int]:
    """The sizes of the frames that carry a message: one if it fits, else as many as needed with another header each.

    A frame has at least one byte of the message, so that also settings without room have an end.
    """
    if size_bytes + overhead_bytes <= frame_bytes:
        return [size_bytes + overhead_bytes]
    room_bytes = max(1, frame_bytes - overhead_bytes - fragment_bytes)
    whole, rest = divmod(size_bytes, room_bytes)
    header_bytes = overhead_bytes + fragment_bytes
    return [room_bytes + header_bytes] * whole + ([rest + header_bytes] if rest else [])
