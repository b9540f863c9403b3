//! A command's output as a model can take it: all of it if it is short, else its head and its tail, with where to read
//! what lies between.

use tonic::Status;

use crate::{
    client::RetryingClient,
    output::text::{self, Edge},
    proto::v1::{self, stream_output_response::Event},
};

/// The most output that a result shows, in bytes.
pub(super) const RESULT_MAX_BYTES: usize = HEAD_BYTES + TAIL_BYTES;
/// How much of a longer output is shown: the beginning.
const HEAD_BYTES: usize = 10 << 10;
/// And the end, where errors are.
const TAIL_BYTES: usize = 20 << 10;

/// A piece of output.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    /// The offset of the first byte that was read.
    pub(super) start: u64,
    /// Where to go on reading.
    pub(super) next: u64,
    /// Bytes before `start`, from where reading was to begin, that are not retained any more.
    pub(super) lost: u64,
}

/// What a result shows of an output.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    /// Bytes that the command has written.
    pub(super) written: u64,
    /// Whether something retained is not shown.
    pub(super) is_cut: bool,
}

/// Reads at most `max_bytes` from an offset on. A character that is not whole is left for the next read, unless the
/// command has ended and there is none.
pub(super) async fn read(
    client: &RetryingClient,
    terminal: &v1::Terminal,
    offset: u64,
    max_bytes: usize,
) -> Result<Piece, Status> {
    let request = v1::StreamOutputRequest {
        terminal_id: terminal.id.clone(),
        session_id: terminal.session_id.clone(),
        stream: v1::OutputStream::Stdout.into(),
        offset,
        follow: false,
    };
    client
        .call(|client| {
            let request = request.clone();
            async move { read_once(client, request, max_bytes).await }
        })
        .await
}

async fn read_once(
    client: crate::client::Client,
    request: v1::StreamOutputRequest,
    max_bytes: usize,
) -> Result<Piece, Status> {
    let offset = request.offset;
    let mut events = client.terminals.clone().stream_output(request).await?.into_inner();
    let (mut bytes, mut start, mut has_ended) = (Vec::new(), None, false);
    while bytes.len() < max_bytes {
        match events.message().await?.and_then(|event| event.event) {
            Some(Event::Chunk(chunk)) => {
                let from = *start.get_or_insert(chunk.offset);
                // Written over while it was read: what comes before the gap is a piece of its own.
                if chunk.offset != from + bytes.len() as u64 {
                    break;
                }
                bytes.extend_from_slice(&chunk.data);
            }
            Some(Event::Gap(gap)) if bytes.is_empty() => start = Some(gap.to_offset),
            Some(Event::Gap(_)) => break,
            Some(Event::End(end)) => {
                has_ended = end.state() == v1::TerminalState::Finished;
                break;
            }
            None => break,
        }
    }
    let start = start.unwrap_or(offset);
    let is_last = has_ended && bytes.len() <= max_bytes;
    bytes.truncate(max_bytes);
    let whole = if is_last { &bytes[..] } else { text::whole_characters(&bytes) };
    let left_edge = if start == offset { Edge::Whole } else { Edge::Cut };
    Ok(Piece {
        text: text::to_text(whole, left_edge, Edge::Whole),
        start,
        next: start + whole.len() as u64,
        lost: start.saturating_sub(offset),
    })
}

/// What a result shows of a terminal, whose positions are those of `terminal`.
pub(super) async fn shown(client: &RetryingClient, terminal: &v1::Terminal) -> Result<Shown, Status> {
    let position = terminal.output.first().copied().unwrap_or_default();
    let (oldest, written) = (position.oldest_offset, position.next_offset);
    let retained = usize::try_from(written - oldest.min(written)).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    if oldest > 0 {
        parts.push(format!("[the first {oldest} bytes of output are not retained]\n"));
    }
    let is_cut = retained > RESULT_MAX_BYTES;
    if is_cut {
        let head = read(client, terminal, oldest, HEAD_BYTES).await?;
        let tail_from = written - TAIL_BYTES as u64;
        let tail = read_cut(client, terminal, tail_from).await?;
        let left_out = tail_from.saturating_sub(head.next);
        parts.push(head.text);
        parts.push(format!(
            "\n[{left_out} bytes left out here: read_output with offset {} has them]\n",
            head.next
        ));
        parts.push(tail);
    } else if retained > 0 {
        parts.push(read(client, terminal, oldest, RESULT_MAX_BYTES).await?.text);
    }
    Ok(Shown { text: parts.concat(), written, is_cut })
}

/// The output from an offset on that may lie within a character.
async fn read_cut(client: &RetryingClient, terminal: &v1::Terminal, offset: u64) -> Result<String, Status> {
    let piece = read(client, terminal, offset, TAIL_BYTES).await?;
    // The rest of a character that began before, as replacements at the very start: at most three.
    let rest = piece.text.chars().take(3).take_while(|c| *c == '\u{fffd}').map(char::len_utf8).sum::<usize>();
    Ok(piece.text[rest..].to_owned())
}
