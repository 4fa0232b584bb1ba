"""Whether the result of a call is thrown away where it was called: a mistake that no value tells of."""

import dis
from types import FrameType

#: what ``await`` consists of
_AWAIT = {
    "GET_AWAITABLE", "LOAD_CONST", "SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "END_SEND",
    "CLEANUP_THROW", "JUMP_FORWARD",
}  # fmt: skip


def is_discarded(frame: FrameType | None) -> bool:
    """Of the call that a frame is in the midst of. What cannot be told is taken to be used."""
    if frame is None:
        return False
    rest = [one for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti]
    found = [one.opname for one in rest[:20]]
    if found[:1] == ["GET_AWAITABLE"]:
        found = [name for name in found if name not in _AWAIT]
    return found[:1] == ["POP_TOP"]
