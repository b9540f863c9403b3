//! Answers the questions of one net process until it ends.

use std::{io, sync::Arc};

use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::mpsc,
    task::JoinSet,
};

use super::{ConnectionObserver, NetError, NetOwner, NetProcess, Nets};
use crate::{
    proto::net::{Attempt, FromNet, ToNet, Verdict, from_net::Message, to_net},
    wire::{self, Decoder, net::MAX_CONNECTIONS},
};

const READ_BYTES: usize = 64 << 10;

/// Which terminal a connection belongs to: of the claim, if it is one of the sandbox's, else the only one that runs.
pub(crate) type TerminalOf<'a> = dyn Fn(&str) -> Option<String> + Send + Sync + 'a;

impl NetProcess {
    /// Answers its questions. Returns when it has ended, or has said what is no message.
    ///
    /// # Errors
    /// When nobody decides, or its socket cannot be used.
    pub(crate) async fn serve(
        &self,
        nets: &Nets,
        owner: &Arc<NetOwner>,
        terminal_of: &TerminalOf<'_>,
    ) -> Result<(), NetError> {
        let observer = nets.observer().ok_or(NetError::Unobserved)?;
        let socket = self.socket.try_clone().and_then(|socket| {
            socket.set_nonblocking(true)?;
            UnixStream::from_std(socket)
        });
        let (mut incoming, mut outgoing) = socket.map_err(NetError::Start)?.into_split();
        // One verdict for each question.
        let (sender, mut verdicts) = mpsc::channel::<Verdict>(MAX_CONNECTIONS);
        let write = async move {
            while let Some(verdict) = verdicts.recv().await {
                let message = ToNet { message: Some(to_net::Message::Verdict(verdict)) };
                let frame = wire::encode(&message, 0).map_err(io::Error::other)?;
                outgoing.write_all(&frame).await?;
            }
            Ok::<_, io::Error>(())
        };
        let read = async move {
            let mut decoder = Decoder::new();
            let mut bytes = vec![0; READ_BYTES];
            let mut judging = JoinSet::new();
            loop {
                let count = match incoming.read(&mut bytes).await {
                    Ok(0) | Err(_) => return,
                    Ok(count) => count,
                };
                decoder.feed(bytes.get(..count).unwrap_or_default());
                while let Ok(Some(frame)) = decoder.next_frame() {
                    let Ok(FromNet { message: Some(message) }) = FromNet::decode(&frame.message[..]) else {
                        return;
                    };
                    // No more than a net process can ask at once.
                    while judging.len() >= MAX_CONNECTIONS {
                        judging.join_next().await;
                    }
                    while judging.try_join_next().is_some() {}
                    take(message, &observer, owner, terminal_of, &sender, &mut judging);
                }
            }
        };
        tokio::select! {
            () = read => {}
            _ = write => {}
        }
        Ok(())
    }
}

fn take(
    message: Message,
    observer: &Arc<dyn ConnectionObserver>,
    owner: &Arc<NetOwner>,
    terminal_of: &TerminalOf<'_>,
    sender: &mpsc::Sender<Verdict>,
    judging: &mut JoinSet<()>,
) {
    let terminal =
        |attempt: Option<&Attempt>| terminal_of(attempt.map_or("", |attempt| &attempt.terminal_id));
    match message {
        Message::Ready(_) => {}
        Message::Ended(ended) => {
            let terminal = terminal(ended.attempt.as_ref());
            observer.ended(owner, ended, terminal);
        }
        Message::Question(question) => {
            let terminal = terminal(question.attempt.as_ref());
            let (observer, owner, sender) = (observer.clone(), owner.clone(), sender.clone());
            judging.spawn(async move {
                let number = question.number;
                let verdict = observer.judge(&owner, question, terminal).await;
                // The process is gone, and with it the one that asked.
                let _ = sender.send(Verdict { number, verdict: Some(verdict) }).await;
            });
        }
    }
}
