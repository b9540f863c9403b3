//! One process of a client: what it has written, its end, and the waits for both.
//!
//! Each piece of output, the exit and the close have a number, without gaps. The notifications carry all of it. What the client has
//! is kept for `process/read` up to a bound; what it may not have is kept in any case, and the command waits for room.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    pin::pin,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::message;

/// Output that is kept of a process for `process/read`, in bytes: older pieces that the client has are dropped, and a process whose
/// client does not have so much waits.
pub const RETAINED_BYTES: usize = 1 << 20;
/// Pieces of output that are kept.
const RETAINED_PIECES: usize = 4_096;
/// Names of writes that are remembered, so that one that is sent again is not done again.
pub(super) const WRITE_NAMES_MAX: usize = 256;
/// The longest wait of a `process/read`.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);

/// Which output a piece is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamName {
    Stdout,
    Stderr,
    Pty,
}

impl StreamName {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Pty => "pty",
        }
    }
}

/// What a process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum InputKind {
    /// Nothing.
    #[default]
    None,
    /// A pipe.
    Pipe,
    /// Its pseudo-terminal.
    Pty,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessEnd {
    pub(super) exit_code: i32,
    /// Why the exit code is not the command's own.
    pub(super) failure: Option<String>,
}

/// A process of the client.
#[derive(Debug)]
pub(super) struct Process {
    /// The client's name for it.
    pub(super) id: String,
    state: Mutex<State>,
    /// The number of the last event.
    changed: watch::Sender<u64>,
    /// There may be room for a piece.
    room: Notify,
    /// Bytes for its standard input or its pseudo-terminal.
    pub(super) input: mpsc::Sender<Bytes>,
    /// Ends a start that waits.
    pub(super) cancelled: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    terminal_id: Option<String>,
    input_kind: InputKind,
    pieces: VecDeque<Piece>,
    retained_bytes: usize,
    /// How many of the pieces the client may not have.
    pending_pieces: usize,
    /// Their bytes.
    pending_bytes: usize,
    /// The client has the number of the close.
    is_close_received: bool,
    /// The number of the last event.
    last_seq: u64,
    end: Option<ProcessEnd>,
    is_closed: bool,
    /// Names of the last writes that were accepted.
    write_names: VecDeque<String>,
}

#[derive(Debug, Clone)]
struct Piece {
    seq: u64,
    stream: StreamName,
    bytes: Bytes,
    /// The client has it.
    is_received: bool,
}

/// What a client reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLimits {
    pub(super) after_seq: u64,
    pub(super) max_bytes: usize,
    pub(super) wait: Duration,
}

impl Process {
    /// A process that is about to be started, and where its input comes out.
    pub(super) fn new(id: String, input_max: usize) -> (Self, mpsc::Receiver<Bytes>) {
        let (input, inputs) = mpsc::channel(input_max);
        let process = Self {
            id,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            room: Notify::new(),
            input,
            cancelled: CancellationToken::new(),
        };
        (process, inputs)
    }

    /// It runs, as this terminal.
    pub(super) fn started(&self, terminal_id: String, input_kind: InputKind) {
        let mut state = self.lock();
        state.terminal_id = Some(terminal_id);
        state.input_kind = input_kind;
    }

    /// The gateway's id of its terminal; none while it is being started.
    pub(super) fn terminal_id(&self) -> Option<String> {
        self.lock().terminal_id.clone()
    }

    pub(super) fn input_kind(&self) -> InputKind {
        self.lock().input_kind
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Whether the client knows that it has ended.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.lock();
        state.is_close_received && state.pending_pieces == 0
    }

    /// Keeps a piece of output; waits while the client does not have what is kept. Returns its number and its notification's
    /// parameters.
    pub(super) async fn push(&self, stream: StreamName, bytes: Bytes) -> (u64, Value) {
        let seq = loop {
            let mut room = pin!(self.room.notified());
            // From here on no notice is missed.
            room.as_mut().enable();
            if let Some(seq) = self.lock().push(stream, &bytes) {
                break seq;
            }
            room.await;
        };
        self.changed.send_replace(seq);
        let params = json!({
            "processId": self.id, "seq": seq, "stream": stream.name(), "chunk": message::encode_bytes(&bytes),
        });
        (seq, params)
    }

    /// The client has what has these numbers. That it has one says nothing of those before, which may have been lost with an
    /// earlier connection.
    pub(super) fn received(&self, numbers: RangeInclusive<u64>) {
        self.lock().received(&numbers);
        self.room.notify_waiters();
    }

    /// Whether a write of this name was accepted before.
    pub(super) fn has_written(&self, name: &str) -> bool {
        self.lock().write_names.iter().any(|known| known == name)
    }

    /// A write of this name was accepted.
    pub(super) fn written(&self, name: String) {
        let mut state = self.lock();
        if state.write_names.len() >= WRITE_NAMES_MAX {
            state.write_names.pop_front();
        }
        state.write_names.push_back(name);
    }

    /// It has ended, and no more output comes. Returns the parameters of the notifications of its exit and its close.
    pub(super) fn end(&self, end: ProcessEnd) -> (Value, Value) {
        let mut state = self.lock();
        let exited = state.last_seq + 1;
        state.last_seq = exited + 1;
        let closed = state.last_seq;
        let exit_code = end.exit_code;
        state.end = Some(end);
        state.is_closed = true;
        drop(state);
        self.changed.send_replace(closed);
        (
            json!({ "processId": self.id, "seq": exited, "exitCode": exit_code, "sandboxDenied": false }),
            json!({ "processId": self.id, "seq": closed }),
        )
    }

    /// What is kept after a number, up to which the client has everything; waits until there is something, or for so long.
    pub(super) async fn read(&self, limits: ReadLimits) -> Value {
        self.received(0..=limits.after_seq);
        let mut changes = self.changed.subscribe();
        let deadline = Instant::now() + limits.wait.min(WAIT_MAX);
        loop {
            let is_news = {
                let last_seq = *changes.borrow_and_update();
                last_seq > limits.after_seq || self.lock().is_closed
            };
            if is_news || timeout_at(deadline, changes.changed()).await.is_err() {
                return self.read_now(limits);
            }
        }
    }

    fn read_now(&self, limits: ReadLimits) -> Value {
        let state = self.lock();
        let (mut chunks, mut bytes, mut next_seq) = (Vec::new(), 0, state.last_seq + 1);
        for piece in state.pieces.iter().filter(|piece| piece.seq > limits.after_seq) {
            if !chunks.is_empty() && bytes + piece.bytes.len() > limits.max_bytes {
                next_seq = piece.seq;
                break;
            }
            bytes += piece.bytes.len();
            let chunk = message::encode_bytes(&piece.bytes);
            chunks.push(json!({ "seq": piece.seq, "stream": piece.stream.name(), "chunk": chunk }));
        }
        json!({
            "chunks": chunks,
            "nextSeq": next_seq,
            "exited": state.end.is_some(),
            "exitCode": state.end.as_ref().map(|end| end.exit_code),
            "closed": state.is_closed,
            "failure": state.end.as_ref().and_then(|end| end.failure.clone()),
            "sandboxDenied": false,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds a process")
    }
}

impl State {
    /// Keeps a piece, whose number is returned; none: there is no room.
    fn push(&mut self, stream: StreamName, bytes: &Bytes) -> Option<u64> {
        if self.pending_bytes >= RETAINED_BYTES || self.pending_pieces >= RETAINED_PIECES {
            return None;
        }
        self.last_seq += 1;
        self.retained_bytes += bytes.len();
        self.pending_bytes += bytes.len();
        self.pending_pieces += 1;
        self.pieces.push_back(Piece { seq: self.last_seq, stream, bytes: bytes.clone(), is_received: false });
        self.drop_oldest();
        Some(self.last_seq)
    }

    fn received(&mut self, numbers: &RangeInclusive<u64>) {
        let first = self.pieces.partition_point(|piece| piece.seq < *numbers.start());
        for piece in self.pieces.range_mut(first..).take_while(|piece| numbers.contains(&piece.seq)) {
            if !std::mem::replace(&mut piece.is_received, true) {
                self.pending_bytes -= piece.bytes.len();
                self.pending_pieces -= 1;
            }
        }
        // No client has what there was not.
        self.is_close_received |= self.is_closed && numbers.contains(&self.last_seq);
        self.drop_oldest();
    }

    /// Drops what the client has and there is no room for.
    fn drop_oldest(&mut self) {
        while self.retained_bytes > RETAINED_BYTES || self.pieces.len() > RETAINED_PIECES {
            let oldest = self.pieces.iter().position(|piece| piece.is_received);
            let Some(oldest) = oldest.and_then(|index| self.pieces.remove(index)) else { return };
            self.retained_bytes -= oldest.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> ReadLimits {
        ReadLimits { after_seq: 0, max_bytes: usize::MAX, wait: Duration::ZERO }
    }

    #[tokio::test]
    async fn output_exit_and_close_are_numbered_without_gaps() {
        let (process, _inputs) = Process::new("p".to_owned(), 1);
        assert_eq!(process.push(StreamName::Stdout, Bytes::from_static(b"a")).await.1["seq"], 1);
        assert_eq!(process.push(StreamName::Stderr, Bytes::from_static(b"b")).await.1["stream"], "stderr");
        let (exited, closed) = process.end(ProcessEnd { exit_code: 3, failure: None });
        assert_eq!((&exited["seq"], &closed["seq"]), (&3.into(), &4.into()));
        let read = process.read(all()).await;
        assert_eq!(read["chunks"].as_array().unwrap().len(), 2);
        assert_eq!((&read["nextSeq"], &read["exitCode"]), (&5.into(), &3.into()));
        let rest = process.read(ReadLimits { after_seq: 1, max_bytes: 1, ..all() }).await;
        assert_eq!(rest["chunks"][0]["seq"], 2);
    }

    #[tokio::test]
    async fn a_read_stops_at_its_bytes_and_the_next_one_goes_on_there() {
        let (process, _inputs) = Process::new("p".to_owned(), 1);
        for _ in 0..3 {
            process.push(StreamName::Stdout, Bytes::from_static(b"xy")).await;
        }
        let read = process.read(ReadLimits { max_bytes: 4, ..all() }).await;
        assert_eq!((read["chunks"].as_array().unwrap().len(), &read["nextSeq"]), (2, &3.into()));
    }

    #[tokio::test]
    async fn what_is_kept_has_a_bound_when_the_client_has_it() {
        let (process, _inputs) = Process::new("p".to_owned(), 1);
        for _ in 0..40 {
            let (seq, _) = process.push(StreamName::Stdout, Bytes::from(vec![0; 64 << 10])).await;
            process.received(seq..=seq);
        }
        let state = process.lock();
        assert!(state.retained_bytes <= RETAINED_BYTES && state.last_seq == 40);
    }

    #[tokio::test]
    async fn what_the_client_may_not_have_is_kept_and_the_process_waits() {
        let (process, _inputs) = Process::new("p".to_owned(), 1);
        let piece = Bytes::from(vec![0; 64 << 10]);
        for _ in 0..16 {
            process.push(StreamName::Stdout, piece.clone()).await;
        }
        {
            let mut waiting = pin!(process.push(StreamName::Stdout, piece.clone()));
            assert!(futures_util::poll!(waiting.as_mut()).is_pending(), "there is no room");
            assert_eq!(process.read(all()).await["chunks"].as_array().unwrap().len(), 16, "nothing is lost");
            assert!(
                futures_util::poll!(waiting.as_mut()).is_pending(),
                "a read from the start receives nothing"
            );
            // The client says what it has.
            process.read(ReadLimits { after_seq: 1, ..all() }).await;
            assert_eq!(waiting.await.0, 17);
        }
        process.received(0..=u64::MAX);
        process.end(ProcessEnd { exit_code: 0, failure: None });
        assert!(!process.is_settled(), "what there was not is not received");
        process.received(19..=19);
        assert!(process.is_settled());
    }

    #[tokio::test]
    async fn what_was_lost_with_a_connection_is_kept_while_the_client_has_what_came_later() {
        let (process, _inputs) = Process::new("p".to_owned(), 1);
        let piece = Bytes::from(vec![0; 64 << 10]);
        for _ in 0..60 {
            let (seq, _) = process.push(StreamName::Stdout, piece.clone()).await;
            if !(3..=7).contains(&seq) {
                process.received(seq..=seq);
            }
        }
        assert!(process.lock().retained_bytes <= RETAINED_BYTES);
        let read = process.read(ReadLimits { after_seq: 2, ..all() }).await;
        let numbers = read["chunks"].as_array().unwrap().iter().map(|chunk| chunk["seq"].as_u64().unwrap());
        assert_eq!(numbers.take(6).collect::<Vec<_>>(), [3, 4, 5, 6, 7, 50]);
        process.end(ProcessEnd { exit_code: 0, failure: None });
        process.received(61..=62);
        assert!(!process.is_settled(), "some of it is lost");
        process.received(0..=60);
        assert!(process.is_settled());
    }

    #[test]
    fn a_write_that_is_sent_again_is_known_by_its_name() {
        let (process, _inputs) = Process::new("p".to_owned(), 1);
        for number in 0..=WRITE_NAMES_MAX {
            process.written(number.to_string());
        }
        assert!(!process.has_written("0") && process.has_written("1") && !process.has_written("new"));
    }
}
