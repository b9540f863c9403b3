from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CursorShape(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CURSOR_SHAPE_UNSPECIFIED: _ClassVar[CursorShape]
    CURSOR_SHAPE_BLOCK: _ClassVar[CursorShape]
    CURSOR_SHAPE_UNDERLINE: _ClassVar[CursorShape]
    CURSOR_SHAPE_BAR: _ClassVar[CursorShape]

class NamedKey(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NAMED_KEY_UNSPECIFIED: _ClassVar[NamedKey]
    NAMED_KEY_ENTER: _ClassVar[NamedKey]
    NAMED_KEY_TAB: _ClassVar[NamedKey]
    NAMED_KEY_BACKSPACE: _ClassVar[NamedKey]
    NAMED_KEY_ESCAPE: _ClassVar[NamedKey]
    NAMED_KEY_UP: _ClassVar[NamedKey]
    NAMED_KEY_DOWN: _ClassVar[NamedKey]
    NAMED_KEY_RIGHT: _ClassVar[NamedKey]
    NAMED_KEY_LEFT: _ClassVar[NamedKey]
    NAMED_KEY_HOME: _ClassVar[NamedKey]
    NAMED_KEY_END: _ClassVar[NamedKey]
    NAMED_KEY_INSERT: _ClassVar[NamedKey]
    NAMED_KEY_DELETE: _ClassVar[NamedKey]
    NAMED_KEY_PAGE_UP: _ClassVar[NamedKey]
    NAMED_KEY_PAGE_DOWN: _ClassVar[NamedKey]

class MouseButton(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MOUSE_BUTTON_UNSPECIFIED: _ClassVar[MouseButton]
    MOUSE_BUTTON_LEFT: _ClassVar[MouseButton]
    MOUSE_BUTTON_MIDDLE: _ClassVar[MouseButton]
    MOUSE_BUTTON_RIGHT: _ClassVar[MouseButton]
    MOUSE_BUTTON_WHEEL_UP: _ClassVar[MouseButton]
    MOUSE_BUTTON_WHEEL_DOWN: _ClassVar[MouseButton]

class MouseAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MOUSE_ACTION_UNSPECIFIED: _ClassVar[MouseAction]
    MOUSE_ACTION_PRESS: _ClassVar[MouseAction]
    MOUSE_ACTION_RELEASE: _ClassVar[MouseAction]
    MOUSE_ACTION_MOVE: _ClassVar[MouseAction]
CURSOR_SHAPE_UNSPECIFIED: CursorShape
CURSOR_SHAPE_BLOCK: CursorShape
CURSOR_SHAPE_UNDERLINE: CursorShape
CURSOR_SHAPE_BAR: CursorShape
NAMED_KEY_UNSPECIFIED: NamedKey
NAMED_KEY_ENTER: NamedKey
NAMED_KEY_TAB: NamedKey
NAMED_KEY_BACKSPACE: NamedKey
NAMED_KEY_ESCAPE: NamedKey
NAMED_KEY_UP: NamedKey
NAMED_KEY_DOWN: NamedKey
NAMED_KEY_RIGHT: NamedKey
NAMED_KEY_LEFT: NamedKey
NAMED_KEY_HOME: NamedKey
NAMED_KEY_END: NamedKey
NAMED_KEY_INSERT: NamedKey
NAMED_KEY_DELETE: NamedKey
NAMED_KEY_PAGE_UP: NamedKey
NAMED_KEY_PAGE_DOWN: NamedKey
MOUSE_BUTTON_UNSPECIFIED: MouseButton
MOUSE_BUTTON_LEFT: MouseButton
MOUSE_BUTTON_MIDDLE: MouseButton
MOUSE_BUTTON_RIGHT: MouseButton
MOUSE_BUTTON_WHEEL_UP: MouseButton
MOUSE_BUTTON_WHEEL_DOWN: MouseButton
MOUSE_ACTION_UNSPECIFIED: MouseAction
MOUSE_ACTION_PRESS: MouseAction
MOUSE_ACTION_RELEASE: MouseAction
MOUSE_ACTION_MOVE: MouseAction

class SnapshotScreenRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "with_styles", "scrollback")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_STYLES_FIELD_NUMBER: _ClassVar[int]
    SCROLLBACK_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    with_styles: bool
    scrollback: ScrollbackRange
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., with_styles: _Optional[bool] = ..., scrollback: _Optional[_Union[ScrollbackRange, _Mapping]] = ...) -> None: ...

class ScrollbackRange(_message.Message):
    __slots__ = ("above", "rows")
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    above: int
    rows: int
    def __init__(self, above: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class SnapshotScreenResponse(_message.Message):
    __slots__ = ("screen", "scrollback", "terminal_id")
    SCREEN_FIELD_NUMBER: _ClassVar[int]
    SCROLLBACK_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    screen: Screen
    scrollback: _containers.RepeatedCompositeFieldContainer[ScreenRow]
    terminal_id: str
    def __init__(self, screen: _Optional[_Union[Screen, _Mapping]] = ..., scrollback: _Optional[_Iterable[_Union[ScreenRow, _Mapping]]] = ..., terminal_id: _Optional[str] = ...) -> None: ...

class Screen(_message.Message):
    __slots__ = ("columns", "rows", "lines", "cursor", "modes", "title", "bells", "scrollback_rows", "offset", "built_from_offset", "resets")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MODES_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    BELLS_FIELD_NUMBER: _ClassVar[int]
    SCROLLBACK_ROWS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BUILT_FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESETS_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    lines: _containers.RepeatedCompositeFieldContainer[ScreenRow]
    cursor: Cursor
    modes: ScreenModes
    title: str
    bells: int
    scrollback_rows: int
    offset: int
    built_from_offset: int
    resets: int
    def __init__(self, columns: _Optional[int] = ..., rows: _Optional[int] = ..., lines: _Optional[_Iterable[_Union[ScreenRow, _Mapping]]] = ..., cursor: _Optional[_Union[Cursor, _Mapping]] = ..., modes: _Optional[_Union[ScreenModes, _Mapping]] = ..., title: _Optional[str] = ..., bells: _Optional[int] = ..., scrollback_rows: _Optional[int] = ..., offset: _Optional[int] = ..., built_from_offset: _Optional[int] = ..., resets: _Optional[int] = ...) -> None: ...

class ScreenRow(_message.Message):
    __slots__ = ("index", "text", "wrapped", "runs")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WRAPPED_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    index: int
    text: str
    wrapped: bool
    runs: _containers.RepeatedCompositeFieldContainer[ScreenRun]
    def __init__(self, index: _Optional[int] = ..., text: _Optional[str] = ..., wrapped: _Optional[bool] = ..., runs: _Optional[_Iterable[_Union[ScreenRun, _Mapping]]] = ...) -> None: ...

class ScreenRun(_message.Message):
    __slots__ = ("column", "columns", "text", "foreground", "background", "bold", "dim", "italic", "underline", "inverse", "hidden", "strikeout")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FOREGROUND_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    BOLD_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    ITALIC_FIELD_NUMBER: _ClassVar[int]
    UNDERLINE_FIELD_NUMBER: _ClassVar[int]
    INVERSE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    STRIKEOUT_FIELD_NUMBER: _ClassVar[int]
    column: int
    columns: int
    text: str
    foreground: Color
    background: Color
    bold: bool
    dim: bool
    italic: bool
    underline: bool
    inverse: bool
    hidden: bool
    strikeout: bool
    def __init__(self, column: _Optional[int] = ..., columns: _Optional[int] = ..., text: _Optional[str] = ..., foreground: _Optional[_Union[Color, _Mapping]] = ..., background: _Optional[_Union[Color, _Mapping]] = ..., bold: _Optional[bool] = ..., dim: _Optional[bool] = ..., italic: _Optional[bool] = ..., underline: _Optional[bool] = ..., inverse: _Optional[bool] = ..., hidden: _Optional[bool] = ..., strikeout: _Optional[bool] = ...) -> None: ...

class Color(_message.Message):
    __slots__ = ("palette", "rgb")
    PALETTE_FIELD_NUMBER: _ClassVar[int]
    RGB_FIELD_NUMBER: _ClassVar[int]
    palette: int
    rgb: int
    def __init__(self, palette: _Optional[int] = ..., rgb: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("column", "row", "visible", "shape")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    column: int
    row: int
    visible: bool
    shape: CursorShape
    def __init__(self, column: _Optional[int] = ..., row: _Optional[int] = ..., visible: _Optional[bool] = ..., shape: _Optional[_Union[CursorShape, str]] = ...) -> None: ...

class ScreenModes(_message.Message):
    __slots__ = ("alternate_screen", "application_cursor", "application_keypad", "bracketed_paste", "mouse", "mouse_motion", "focus_events")
    ALTERNATE_SCREEN_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_CURSOR_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_KEYPAD_FIELD_NUMBER: _ClassVar[int]
    BRACKETED_PASTE_FIELD_NUMBER: _ClassVar[int]
    MOUSE_FIELD_NUMBER: _ClassVar[int]
    MOUSE_MOTION_FIELD_NUMBER: _ClassVar[int]
    FOCUS_EVENTS_FIELD_NUMBER: _ClassVar[int]
    alternate_screen: bool
    application_cursor: bool
    application_keypad: bool
    bracketed_paste: bool
    mouse: bool
    mouse_motion: bool
    focus_events: bool
    def __init__(self, alternate_screen: _Optional[bool] = ..., application_cursor: _Optional[bool] = ..., application_keypad: _Optional[bool] = ..., bracketed_paste: _Optional[bool] = ..., mouse: _Optional[bool] = ..., mouse_motion: _Optional[bool] = ..., focus_events: _Optional[bool] = ...) -> None: ...

class WatchScreenRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "with_styles", "max_per_second")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_STYLES_FIELD_NUMBER: _ClassVar[int]
    MAX_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    with_styles: bool
    max_per_second: int
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., with_styles: _Optional[bool] = ..., max_per_second: _Optional[int] = ...) -> None: ...

class WatchScreenResponse(_message.Message):
    __slots__ = ("snapshot", "change", "ended", "terminal_id")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    snapshot: Screen
    change: ScreenChange
    ended: ScreenEnded
    terminal_id: str
    def __init__(self, snapshot: _Optional[_Union[Screen, _Mapping]] = ..., change: _Optional[_Union[ScreenChange, _Mapping]] = ..., ended: _Optional[_Union[ScreenEnded, _Mapping]] = ..., terminal_id: _Optional[str] = ...) -> None: ...

class ScreenChange(_message.Message):
    __slots__ = ("lines", "cursor", "modes", "title", "bells", "scrollback_rows", "offset")
    LINES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MODES_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    BELLS_FIELD_NUMBER: _ClassVar[int]
    SCROLLBACK_ROWS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[ScreenRow]
    cursor: Cursor
    modes: ScreenModes
    title: str
    bells: int
    scrollback_rows: int
    offset: int
    def __init__(self, lines: _Optional[_Iterable[_Union[ScreenRow, _Mapping]]] = ..., cursor: _Optional[_Union[Cursor, _Mapping]] = ..., modes: _Optional[_Union[ScreenModes, _Mapping]] = ..., title: _Optional[str] = ..., bells: _Optional[int] = ..., scrollback_rows: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ScreenEnded(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SendInputRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "inputs")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    inputs: _containers.RepeatedCompositeFieldContainer[TerminalInput]
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[TerminalInput, _Mapping]]] = ...) -> None: ...

class SendInputResponse(_message.Message):
    __slots__ = ("written_bytes",)
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    written_bytes: int
    def __init__(self, written_bytes: _Optional[int] = ...) -> None: ...

class TerminalInput(_message.Message):
    __slots__ = ("text", "key", "paste", "mouse", "focus", "raw")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PASTE_FIELD_NUMBER: _ClassVar[int]
    MOUSE_FIELD_NUMBER: _ClassVar[int]
    FOCUS_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    text: str
    key: KeyPress
    paste: str
    mouse: MouseInput
    focus: bool
    raw: bytes
    def __init__(self, text: _Optional[str] = ..., key: _Optional[_Union[KeyPress, _Mapping]] = ..., paste: _Optional[str] = ..., mouse: _Optional[_Union[MouseInput, _Mapping]] = ..., focus: _Optional[bool] = ..., raw: _Optional[bytes] = ...) -> None: ...

class KeyPress(_message.Message):
    __slots__ = ("character", "named", "function", "keypad", "shift", "alt", "control")
    CHARACTER_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    KEYPAD_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    ALT_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    character: str
    named: NamedKey
    function: int
    keypad: str
    shift: bool
    alt: bool
    control: bool
    def __init__(self, character: _Optional[str] = ..., named: _Optional[_Union[NamedKey, str]] = ..., function: _Optional[int] = ..., keypad: _Optional[str] = ..., shift: _Optional[bool] = ..., alt: _Optional[bool] = ..., control: _Optional[bool] = ...) -> None: ...

class MouseInput(_message.Message):
    __slots__ = ("button", "action", "column", "row", "shift", "alt", "control")
    BUTTON_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    ALT_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    button: MouseButton
    action: MouseAction
    column: int
    row: int
    shift: bool
    alt: bool
    control: bool
    def __init__(self, button: _Optional[_Union[MouseButton, str]] = ..., action: _Optional[_Union[MouseAction, str]] = ..., column: _Optional[int] = ..., row: _Optional[int] = ..., shift: _Optional[bool] = ..., alt: _Optional[bool] = ..., control: _Optional[bool] = ...) -> None: ...
