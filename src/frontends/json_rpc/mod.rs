//! JSON-RPC as the front ends speak it: messages where they stand in their line, lines as they come from a peer, and one queue of those that
//! are to be written to it.
//!
//! Nothing here knows a method. What the library of the Model Context Protocol does itself is left to it: its messages, and the writing of
//! them.

mod lines;
mod message;

pub(crate) use lines::{
    Disconnected, InputLine, LineQueue, LineReader, LineSender, QueueBounds, QueuedLine, Receipt,
    line_channel,
};
pub(crate) use message::{
    Ambiguity, Envelope, JsonText, Message, MessageError, OutgoingLine, ParsedLine, Peeked, id_key, is_id,
    parse, parse_one,
};
