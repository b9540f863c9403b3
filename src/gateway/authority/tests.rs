//! Random connections: nothing but an invalid authority changes, and the HTTP/2 library reads what the client meant.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tonic::codegen::http::{Request, uri::Authority};

use super::{BLOCK_MAX_BYTES, HELD_READ_BYTES, ValidAuthority, block};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const TABLE_BYTES_MAX: usize = 4_096;

/// The fields of the static table that requests here use, and their indexes.
const STATIC: [(usize, &str, &str); 4] =
    [(1, ":authority", ""), (3, ":method", "POST"), (4, ":path", "/"), (6, ":scheme", "http")];

/// How a field is written.
#[derive(Debug, Clone, Copy)]
struct Style {
    /// Incremental indexing, no indexing, never indexed.
    indexing: usize,
    spells_name: bool,
    huffman_name: bool,
    huffman_value: bool,
}

#[derive(Debug, Clone)]
struct Call {
    authority: String,
    fields: Vec<(String, String)>,
    styles: Vec<Style>,
    /// New sizes of the header table.
    resize: Option<usize>,
    padding: Option<u8>,
    has_priority: bool,
    fragments: usize,
}

/// A client's side of HPACK, written for the tests alone.
#[derive(Default)]
struct Encoder {
    table: Vec<(String, String)>,
    max: Option<usize>,
}

impl Encoder {
    fn block(&mut self, call: &Call) -> Vec<u8> {
        let mut block = Vec::new();
        if let Some(size) = call.resize {
            self.max = Some(size);
            self.evict();
            integer(&mut block, 0x20, 5, size);
        }
        let mut fields = vec![
            (":method".to_owned(), "POST".to_owned()),
            (":scheme".to_owned(), "http".to_owned()),
            (":path".to_owned(), "/a/b".to_owned()),
            (":authority".to_owned(), call.authority.clone()),
        ];
        fields.extend(call.fields.iter().cloned());
        for (place, (name, value)) in fields.iter().enumerate() {
            self.field(&mut block, name, value, call.styles[place % call.styles.len()]);
        }
        block
    }

    fn field(&mut self, block: &mut Vec<u8>, name: &str, value: &str, style: Style) {
        if let Some((index, ..)) = STATIC.iter().find(|(_, n, v)| *n == name && *v == value && !v.is_empty())
        {
            return integer(block, 0x80, 7, *index);
        }
        if let Some(place) = self.table.iter().position(|(n, v)| n == name && v == value) {
            return integer(block, 0x80, 7, 62 + place);
        }
        let in_static = STATIC.iter().find(|(_, n, _)| *n == name).map(|(index, ..)| *index);
        let in_table = self.table.iter().position(|(n, _)| n == name).map(|place| 62 + place);
        let index = in_static.or(in_table).filter(|_| !style.spells_name).unwrap_or(0);
        let (pattern, bits) = [(0x40, 6), (0x00, 4), (0x10, 4)][style.indexing];
        integer(block, pattern, bits, index);
        if index == 0 {
            text(block, name, style.huffman_name);
        }
        text(block, value, style.huffman_value);
        if style.indexing == 0 {
            self.table.insert(0, (name.to_owned(), value.to_owned()));
            self.evict();
        }
    }

    fn evict(&mut self) {
        let size =
            |table: &[(String, String)]| -> usize { table.iter().map(|(n, v)| n.len() + v.len() + 32).sum() };
        while size(&self.table) > self.max.unwrap_or(TABLE_BYTES_MAX) {
            self.table.pop();
        }
    }
}

fn integer(to: &mut Vec<u8>, pattern: u8, bits: u32, mut value: usize) {
    let mask = (1 << bits) - 1;
    if value < mask {
        to.push(pattern | value as u8);
        return;
    }
    to.push(pattern | mask as u8);
    value -= mask;
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn text(to: &mut Vec<u8>, value: &str, is_huffman: bool) {
    let encoded = block::encode_huffman(value.as_bytes());
    // As encoders do it.
    let is_huffman = is_huffman && encoded.len() <= value.len();
    let bytes = if is_huffman { encoded.as_slice() } else { value.as_bytes() };
    integer(to, if is_huffman { 0x80 } else { 0 }, 7, bytes.len());
    to.extend(bytes);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The bytes that a client sends, with some data behind each call.
fn connection(calls: &[Call]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    for (call, stream) in calls.iter().zip((1..).step_by(2)) {
        let block = encoder.block(call);
        let size = block.len().div_ceil(call.fragments).max(1);
        let count = block.len().div_ceil(size);
        for (number, fragment) in block.chunks(size).enumerate() {
            let mut flags = if number + 1 == count { 4 } else { 0 };
            let mut payload = Vec::new();
            if number > 0 {
                bytes.extend(frame(9, flags, stream, fragment));
                continue;
            }
            if let Some(padding) = call.padding {
                flags |= 8;
                payload.push(padding);
            }
            if call.has_priority {
                flags |= 0x20;
                payload.extend([0, 0, 0, 0, 15]);
            }
            payload.extend(fragment);
            payload.resize(payload.len() + usize::from(call.padding.unwrap_or(0)), 0);
            bytes.extend(frame(1, flags, stream, &payload));
        }
        bytes.extend(frame(0, 1, stream, b"\x01\x04data"));
    }
    bytes
}

fn style() -> impl Strategy<Value = Style> {
    (0..3_usize, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(indexing, spells_name, huffman_name, huffman_value)| Style {
            indexing,
            spells_name,
            huffman_name,
            huffman_value,
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let authority = prop_oneof![
        Just("localhost".to_owned()),
        Just("%2Frun%2Fprovost%2Fprovost.sock".to_owned()),
        Just("/run/provost/provost.sock".to_owned()),
        Just("unix:/run/a:b.sock".to_owned()),
        Just("[::1]:50051".to_owned()),
        "[ -~]{1,120}",
    ];
    // Few names and values, so that the table is used.
    let field = ("x-[a-c]", "[a-z]{1,3}|[!-~]{40,200}");
    let resize = prop_oneof![9 => Just(None), 1 => (0..=TABLE_BYTES_MAX).prop_map(Some)];
    let padding = prop_oneof![Just(None), any::<u8>().prop_map(Some)];
    (
        authority,
        prop::collection::vec(field, 0..8),
        prop::collection::vec(style(), 1..12),
        resize,
        padding,
        any::<bool>(),
        1..5_usize,
    )
        .prop_map(|(authority, fields, styles, resize, padding, has_priority, fragments)| Call {
            authority,
            fields,
            styles,
            resize,
            padding,
            has_priority,
            fragments,
        })
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        // Far more than it takes, also byte by byte on a host that is busy.
        tokio::time::timeout(Duration::from_secs(60), future).await.expect("the connection stands still")
    })
}

/// What a future gives at once.
fn now<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(tokio::task::unconstrained(future)).poll(&mut Context::from_waker(Waker::noop()))
}

/// What can be read behind the filter when the bytes arrive in such pieces, and the most that it held.
async fn filtered(bytes: &[u8], pieces: &[usize]) -> (Vec<u8>, usize) {
    let (mut client, server) = duplex(1 << 20);
    let mut filter = ValidAuthority::new(server);
    let (mut read, mut held) = (Vec::new(), 0);
    let (mut at, mut turn) = (0, 0);
    while at < bytes.len() {
        let piece = pieces[turn % pieces.len()].min(bytes.len() - at);
        client.write_all(&bytes[at..at + piece]).await.expect("the pipe has room");
        (at, turn) = (at + piece, turn + 1);
        let mut buffer = vec![0; pieces[(turn * 7) % pieces.len()].max(1)];
        // What is there now, without waiting for more.
        while let Poll::Ready(count) = now(filter.read(&mut buffer)) {
            read.extend(&buffer[..count.expect("the pipe is open")]);
        }
        held = held.max(filter.held.len());
    }
    drop(client);
    filter.read_to_end(&mut read).await.expect("the pipe ends");
    (read, held)
}

/// The requests as the HTTP/2 library sees them behind the filter.
async fn served(bytes: Vec<u8>, count: usize) -> Result<Vec<Request<()>>, h2::Error> {
    let (mut client, server) = duplex(1 << 20);
    client.write_all(&bytes).await.expect("the pipe has room");
    let mut connection = h2::server::handshake(ValidAuthority::new(server)).await?;
    let mut requests = Vec::new();
    while requests.len() < count {
        let Some(accepted) = connection.accept().await else { break };
        let (request, mut answer) = accepted?;
        answer.send_reset(h2::Reason::NO_ERROR);
        requests.push(request.map(|_| ()));
    }
    Ok(requests)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_library_reads_what_the_client_meant(calls in prop::collection::vec(call(), 1..8)) {
        let requests = run(served(connection(&calls), calls.len())).expect("the connection lasts");
        prop_assert_eq!(requests.len(), calls.len());
        for (call, request) in calls.iter().zip(requests) {
            let authority = request.uri().authority().expect("there is an authority").as_str();
            if call.authority.parse::<Authority>().is_ok() {
                prop_assert_eq!(authority, &call.authority);
            } else {
                prop_assert_eq!(authority.len(), call.authority.len());
            }
            prop_assert_eq!(request.uri().path(), "/a/b");
            let mut fields: Vec<(String, String)> = request
                .headers()
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_str().expect("it is ASCII").to_owned()))
                .collect();
            let mut meant = call.fields.clone();
            fields.sort();
            meant.sort();
            prop_assert_eq!(fields, meant);
        }
    }

    #[test]
    fn a_valid_authority_passes_unchanged_however_it_arrives(
        mut calls in prop::collection::vec(call(), 1..4),
        pieces in prop::collection::vec(1..3_000_usize, 1..8),
    ) {
        for call in &mut calls {
            call.authority = "localhost:50051".to_owned();
        }
        let bytes = connection(&calls);
        let (read, _) = run(filtered(&bytes, &pieces));
        prop_assert_eq!(read, bytes);
    }

    #[test]
    fn the_pieces_in_which_bytes_arrive_do_not_matter(
        calls in prop::collection::vec(call(), 1..4),
        pieces in prop::collection::vec(1..300_usize, 1..8),
    ) {
        let bytes = connection(&calls);
        let (whole, _) = run(filtered(&bytes, &[bytes.len()]));
        let (read, _) = run(filtered(&bytes, &pieces));
        prop_assert_eq!(read, whole);
    }

    #[test]
    fn arbitrary_frames_pass_within_the_bounds(
        frames in prop::collection::vec(
            (
                prop_oneof![Just(1_u8), Just(9), Just(0), any::<u8>()],
                any::<u8>(),
                prop_oneof![prop::collection::vec(any::<u8>(), 0..200), (0..40_000_usize).prop_map(|n| vec![0x41; n])],
            ),
            0..30,
        ),
        tail in prop::collection::vec(any::<u8>(), 0..40),
        pieces in prop::collection::vec(1..20_000_usize, 1..8),
    ) {
        let mut bytes = PREFACE.to_vec();
        for (kind, flags, payload) in &frames {
            bytes.extend(frame(*kind, *flags, 1, payload));
        }
        bytes.extend(tail);
        let (read, held) = run(filtered(&bytes, &pieces));
        prop_assert_eq!(read.len(), bytes.len());
        prop_assert!(held <= BLOCK_MAX_BYTES + HELD_READ_BYTES, "{held} bytes are held");
    }

    #[test]
    fn a_code_is_read_as_it_was_written(text in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(block::decode_huffman(&block::encode_huffman(&text)), Some(text));
    }

    #[test]
    fn a_filler_keeps_both_lengths(text in "[ -~]{1,200}") {
        let encoded = block::encode_huffman(text.as_bytes());
        let filler = block::filler(text.len(), encoded.len());
        prop_assert_eq!(filler.is_some(), encoded.len() <= text.len());
        if let Some(filler) = filler {
            prop_assert_eq!(filler.len(), encoded.len());
            let decoded = block::decode_huffman(&filler).expect("it is a code");
            prop_assert_eq!(decoded.len(), text.len());
            prop_assert!(Authority::try_from(decoded.as_slice()).is_ok());
        }
    }
}

#[test]
fn the_filter_is_what_lets_such_a_client_in() {
    let call = Call {
        authority: "%2Frun%2Fprovost.sock".to_owned(),
        fields: Vec::new(),
        styles: vec![Style { indexing: 0, spells_name: true, huffman_name: false, huffman_value: false }],
        resize: None,
        padding: None,
        has_priority: false,
        fragments: 1,
    };
    let valid = Call { authority: "localhost".to_owned(), ..call.clone() };
    let bytes = connection(&[call.clone(), valid]);
    let requests = run(served(bytes.clone(), 2)).expect("the connection lasts");
    assert_eq!(requests[0].uri().authority().expect("it is set").as_str(), "-2Frun-2Fprovost.sock");
    let first = run(async move {
        let (mut client, server) = duplex(1 << 20);
        client.write_all(&bytes).await.expect("the pipe has room");
        let mut connection = h2::server::handshake(server).await.expect("the preface is right");
        connection.accept().await.expect("the connection lasts").expect("a request is valid").0
    });
    assert_eq!(first.uri().authority().expect("it is set").as_str(), "localhost", "the library takes both");
}
