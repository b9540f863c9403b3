//! Frames with descriptors over a unix stream socket: sendmsg(2), recvmsg(2), SCM_RIGHTS.
//!
//! The descriptors of a frame travel with its first byte, so they never arrive later than it; the receiver
//! keeps them in order and each frame takes as many as it announced. Works on blocking and non-blocking
//! sockets alike. Refuses a truncated control message and descriptors that no frame has asked for; knows
//! nothing of what the messages mean.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::Arc,
};

use nix::errno::Errno;

use crate::wire::{DecodeError, Decoder, HEADER_BYTES, MAX_DESCRIPTORS};

/// How many bytes one receive takes in at most.
const RECEIVE_BYTES: usize = 32 << 10;

/// Frames without descriptors are put together up to about this.
const COALESCE_BYTES: usize = 16 << 10;

/// Room for one control message with [`MAX_DESCRIPTORS`] descriptors, in `u64`s so that it is aligned for
/// `cmsghdr`.
const CONTROL_WORDS: usize = 130;

/// Room for one control message with one descriptor.
const ONE_DESCRIPTOR_WORDS: usize = 3;

/// Descriptors that may wait for their frame: those of one frame that has not come in whole, and of the next.
const MAX_WAITING_DESCRIPTORS: usize = 2 * MAX_DESCRIPTORS;

/// A received message, still encoded, with its descriptors (close-on-exec).
#[derive(Debug)]
pub struct ReceivedFrame {
    /// The protobuf message.
    pub message: Vec<u8>,
    /// In the order in which they were sent.
    pub descriptors: Vec<OwnedFd>,
}

/// Why receiving failed. The connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// recvmsg(2) failed.
    #[error("receive a frame")]
    Receive(#[source] Errno),
    /// Nothing came in the socket's time (`SO_RCVTIMEO` of socket(7)).
    #[error("nothing came in time")]
    TimedOut,
    /// The bytes are not frames.
    #[error("read a frame")]
    Decode(#[from] DecodeError),
    /// Descriptors were cut off: this process has too many open, or the peer sent more than is allowed.
    #[error("descriptors of a frame were cut off")]
    DescriptorsTruncated,
    /// A frame announces descriptors that did not come.
    #[error("frame announces {announced} descriptors and {received} came")]
    DescriptorsMissing {
        /// As the frame says.
        announced: usize,
        /// As the kernel handed over.
        received: usize,
    },
    /// The peer sends descriptors that belong to no frame.
    #[error("descriptors came that belong to no frame")]
    DescriptorsUnannounced,
    /// The peer closed in the middle of a frame.
    #[error("connection ended in the middle of a frame")]
    Truncated,
}

/// What one receive did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveStatus {
    /// Bytes came in; look for frames.
    Bytes(usize),
    /// Nothing is there now (non-blocking sockets only).
    Nothing,
    /// The peer has closed, at the end of a frame.
    End,
}

/// The receiving half of a connection.
#[derive(Debug, Default)]
pub struct FrameReceiver {
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
}

impl FrameReceiver {
    /// A receiver at the start of a connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for the next frame on a blocking socket; `None` when the peer has closed.
    ///
    /// On a non-blocking socket with nothing to read it fails with [`ReceiveError::TimedOut`].
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Option<ReceivedFrame>, ReceiveError> {
        loop {
            if let Some(frame) = self.next_frame()? {
                return Ok(Some(frame));
            }
            match self.fill(socket)? {
                ReceiveStatus::Bytes(_) => {}
                ReceiveStatus::Nothing => return Err(ReceiveError::TimedOut),
                ReceiveStatus::End => return Ok(None),
            }
        }
    }

    /// One recvmsg(2). Take out the frames with [`Self::next_frame`] before the next call.
    pub fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<ReceiveStatus, ReceiveError> {
        let mut bytes = [0_u8; RECEIVE_BYTES];
        let count = match receive_once(socket, &mut bytes, &mut self.descriptors) {
            Ok(0) if self.decoder.is_at_boundary() => return Ok(ReceiveStatus::End),
            Ok(0) => return Err(ReceiveError::Truncated),
            Ok(count) => count,
            Err(ReceiveError::Receive(Errno::EAGAIN)) => return Ok(ReceiveStatus::Nothing),
            Err(error) => return Err(error),
        };
        if self.descriptors.len() > MAX_WAITING_DESCRIPTORS {
            return Err(ReceiveError::DescriptorsUnannounced);
        }
        self.decoder.feed(&bytes[..count]);
        Ok(ReceiveStatus::Bytes(count))
    }

    /// The next complete frame of what was received.
    pub fn next_frame(&mut self) -> Result<Option<ReceivedFrame>, ReceiveError> {
        let Some(raw) = self.decoder.next_frame()? else {
            return Ok(None);
        };
        let received = self.descriptors.len();
        if received < raw.descriptors {
            return Err(ReceiveError::DescriptorsMissing { announced: raw.descriptors, received });
        }
        let descriptors = self.descriptors.drain(..raw.descriptors).collect();
        if self.decoder.is_at_boundary() && !self.descriptors.is_empty() {
            return Err(ReceiveError::DescriptorsUnannounced);
        }
        Ok(Some(ReceivedFrame { message: raw.message, descriptors }))
    }
}

/// What flushing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// Everything is with the kernel.
    All,
    /// The socket takes no more now; [`FrameSender::flush`] again when it is writable.
    Blocked,
}

/// The sending half of a non-blocking connection: what the socket did not take yet.
///
/// It has no bound of its own: the caller looks at [`Self::queued_bytes`] and decides what to do with a
/// peer that does not read.
#[derive(Debug, Default)]
pub struct FrameSender {
    queue: VecDeque<Outgoing>,
    queued_bytes: usize,
}

#[derive(Debug)]
struct Outgoing {
    frame: Vec<u8>,
    sent: usize,
    descriptors: Vec<Arc<OwnedFd>>,
}

impl FrameSender {
    /// A sender with nothing queued.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues an encoded frame ([`crate::wire::encode`]) behind what is queued already.
    pub fn push(&mut self, frame: Vec<u8>, descriptors: Vec<Arc<OwnedFd>>) {
        debug_assert!(frame.len() >= HEADER_BYTES && usize::from(frame[4]) == descriptors.len());
        self.queued_bytes += frame.len();
        if let Some(last) = self.queue.back_mut()
            && last.descriptors.is_empty()
            && descriptors.is_empty()
            && last.frame.len() < COALESCE_BYTES
        {
            // Sent in one call, and received in one.
            last.frame.extend(frame);
            return;
        }
        self.queue.push_back(Outgoing { frame, sent: 0, descriptors });
    }

    /// Bytes that the socket has not taken yet.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Sends as much as the socket takes without waiting.
    ///
    /// # Errors
    /// The errno of sendmsg(2); `EPIPE` and `ECONNRESET` when the peer is gone.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<Flushed, Errno> {
        while let Some(outgoing) = self.queue.front_mut() {
            let descriptors: &[Arc<OwnedFd>] = if outgoing.sent == 0 { &outgoing.descriptors } else { &[] };
            let raw = raw_descriptors(descriptors.iter().map(|one| one.as_fd()));
            match send_once(socket, &outgoing.frame[outgoing.sent..], &raw) {
                Ok(count) => {
                    outgoing.sent += count;
                    self.queued_bytes -= count;
                    if outgoing.sent == outgoing.frame.len() {
                        self.queue.pop_front();
                    }
                }
                Err(Errno::EAGAIN) => return Ok(Flushed::Blocked),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Flushed::All)
    }
}

/// Accepts a connection, as a non-blocking socket (accept4(2)).
///
/// # Errors
/// The errno of accept4(2).
pub fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: with null pointers the kernel writes no address; the other arguments are numbers.
    let raw =
        unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
    // SAFETY: on success the kernel has just made this descriptor for us alone.
    Errno::result(raw).map(|raw| unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Sends one encoded frame on a blocking socket, whole.
///
/// # Errors
/// The errno of sendmsg(2).
pub fn send(socket: BorrowedFd<'_>, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut raw = raw_descriptors(descriptors.iter().copied());
    let mut sent = 0;
    while sent < frame.len() {
        sent += send_once(socket, &frame[sent..], &raw)?;
        raw.clear();
    }
    Ok(())
}

/// One recvmsg(2) of plain bytes that may come with a descriptor. Further descriptors are closed by the kernel, unless one of them
/// fits into the same space: those are returned, too.
///
/// # Errors
/// The errno of recvmsg(2).
pub fn receive_bytes(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut descriptors = VecDeque::new();
    let (count, _) = receive_into(socket, bytes, &mut [0; ONE_DESCRIPTOR_WORDS], &mut descriptors)?;
    Ok((count, descriptors.into()))
}

fn raw_descriptors<'fd>(descriptors: impl Iterator<Item = BorrowedFd<'fd>>) -> Vec<RawFd> {
    descriptors.map(|one| one.as_raw_fd()).collect()
}

/// The callers keep the descriptors open for the duration of the call.
fn send_once(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd]) -> Result<usize, Errno> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(Errno::EINVAL);
    }
    let mut control = [0_u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: bytes.as_ptr() as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: `msghdr` is plain data for which all zeroes is a valid value (no name, no control, no parts).
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        let payload = size_of_val(descriptors) as u32;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute. The control buffer is zeroed, aligned for cmsghdr, and
        // long enough for MAX_DESCRIPTORS, so the first header lies inside it and so does its data.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(payload) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
            let data = libc::CMSG_DATA(header);
            std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast(), data, payload as usize);
        }
    }
    loop {
        // SAFETY: `message` points to `part`, `bytes` and `control`, which all live until after the call; the
        // kernel only reads them.
        let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        match Errno::result(count) {
            Ok(count) => return Ok(count as usize),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// One recvmsg(2) into `bytes`; descriptors that came are owned by `descriptors` from here on.
fn receive_once(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    descriptors: &mut VecDeque<OwnedFd>,
) -> Result<usize, ReceiveError> {
    let received = receive_into(socket, bytes, &mut [0; CONTROL_WORDS], descriptors);
    match received.map_err(ReceiveError::Receive)? {
        (count, Arrival::Whole) => Ok(count),
        (_, Arrival::CutOff) => Err(ReceiveError::DescriptorsTruncated),
    }
}

/// Whether all descriptors of a message have come.
enum Arrival {
    Whole,
    CutOff,
}

/// One recvmsg(2), with this room for a control message.
fn receive_into(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    control: &mut [u64],
    descriptors: &mut VecDeque<OwnedFd>,
) -> Result<(usize, Arrival), Errno> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: `msghdr` is plain data for which all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control) as _;
    let count = loop {
        // SAFETY: the buffers behind `message` live until after the call and are as long as it says.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match Errno::result(count) {
            Ok(count) => break count as usize,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    // SAFETY: the kernel has set `msg_controllen` to what it wrote, so the CMSG macros stay inside `control`.
    // Each descriptor of an SCM_RIGHTS message was just made for this process and is owned by nobody else.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let payload = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..payload / size_of::<RawFd>() {
                    descriptors.push_back(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let is_cut_off = message.msg_flags & libc::MSG_CTRUNC != 0;
    Ok((count, if is_cut_off { Arrival::CutOff } else { Arrival::Whole }))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _, os::unix::net::UnixStream};

    use prost::Message as _;

    use super::*;
    use crate::{
        proto::supervisor::{ToSupervisor, WriteStdin, to_supervisor::Request},
        wire::encode,
    };

    fn message(sequence: u64, bytes: usize) -> ToSupervisor {
        let request =
            WriteStdin { terminal_id: "t".into(), data: vec![7; bytes].into(), eof: false, offset: None };
        ToSupervisor { sequence, request: Some(Request::WriteStdin(request)) }
    }

    #[test]
    fn a_peer_that_sends_nothing_in_time_is_told_apart() {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(std::time::Duration::from_millis(10))).unwrap();
        let silent = FrameReceiver::new().receive(far.as_fd());
        assert!(matches!(silent, Err(ReceiveError::TimedOut)), "{silent:?}");
        drop(near);
        assert!(FrameReceiver::new().receive(far.as_fd()).unwrap().is_none());
    }

    #[test]
    fn descriptors_arrive_with_their_own_frame() {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let null = Arc::new(OwnedFd::from(File::open("/dev/null").unwrap()));
        let zero = Arc::new(OwnedFd::from(File::open("/dev/zero").unwrap()));
        let mut sender = FrameSender::new();
        near.set_nonblocking(true).unwrap();
        sender.push(encode(&message(1, 10), 0).unwrap(), vec![]);
        sender.push(encode(&message(2, 10), 2).unwrap(), vec![null.clone(), zero.clone()]);
        sender.push(encode(&message(3, 200_000), 1).unwrap(), vec![zero]);
        sender.push(encode(&message(4, 1), 1).unwrap(), vec![null]);

        let mut receiver = FrameReceiver::new();
        let mut got = Vec::new();
        while got.len() < 4 {
            sender.flush(near.as_fd()).unwrap();
            receiver.fill(far.as_fd()).unwrap();
            while let Some(frame) = receiver.next_frame().unwrap() {
                let message = ToSupervisor::decode(&frame.message[..]).unwrap();
                got.push((message.sequence, frame.descriptors.len()));
            }
        }
        assert_eq!(got, [(1, 0), (2, 2), (3, 1), (4, 1)]);
        assert_eq!(sender.queued_bytes(), 0);
        drop(near);
        assert_eq!(receiver.fill(far.as_fd()).unwrap(), ReceiveStatus::End);
    }

    #[test]
    fn a_frame_without_its_descriptors_is_refused() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(&encode(&message(1, 1), 3).unwrap()).unwrap();
        let error = FrameReceiver::new().receive(far.as_fd()).unwrap_err();
        assert!(matches!(error, ReceiveError::DescriptorsMissing { announced: 3, received: 0 }));
    }

    #[test]
    fn descriptors_that_no_frame_announced_are_refused() {
        let (near, far) = UnixStream::pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        send(near.as_fd(), &encode(&message(1, 1), 0).unwrap(), &[null.as_fd()]).unwrap();
        let error = FrameReceiver::new().receive(far.as_fd()).unwrap_err();
        assert!(matches!(error, ReceiveError::DescriptorsUnannounced));
    }

    #[test]
    fn an_end_in_the_middle_of_a_frame_is_not_an_end() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(&encode(&message(1, 100), 0).unwrap()[..50]).unwrap();
        drop(near);
        assert!(matches!(FrameReceiver::new().receive(far.as_fd()), Err(ReceiveError::Truncated)));
    }
}
