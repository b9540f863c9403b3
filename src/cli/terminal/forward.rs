//! `provost forward`: brings a port of a terminal's sandbox to a loopback port or a unix socket of the caller's.

use std::{convert::Infallible, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, UnixListener},
    sync::{Semaphore, mpsc},
    time::sleep,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::{
    cli::{
        console::{
            error::CliError,
            exit_status,
            output_file::{self, BoundSocket},
            signals::TerminationSignals,
            stdio::{self, WriteOutcome},
        },
        gateway_link::connection::{GatewayConnection, Terminals},
        request::arguments::GatewayArguments,
    },
    printable,
    proto::v1::{
        ForwardEndOfInput, ForwardRequest, ForwardStart, GetTerminalRequest, WaitForExitRequest,
        forward_request::Message, forward_response::Event,
    },
};

/// Connections at once. More wait in the listener.
const MAX_CONNECTIONS: usize = 64;
/// Messages of a connection on their way to the gateway.
const QUEUED_MESSAGES: usize = 4;
const READ_BYTES: usize = 32 << 10;
/// How long nothing is accepted after an error.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// `provost forward`.
#[derive(Debug, Args)]
#[command(
    about = "Bring a port of a terminal's sandbox here, as of a development server",
    long_about = "Listens on a loopback port or a unix socket here, and connects each connection to a port on the loopback of \
                  the terminal's sandbox. Only you can do that with your own terminals; on a loopback port here everybody on \
                  this host can connect, and to a unix socket only you. Prints where it listens, and ends with the command \
                  of the terminal.",
    after_help = "Exit status:\n  0 when the command has ended; 128+n if signal n ended this process\n\n\
                  Example:\n  provost forward term_01JD3ZK6T0000000000000000 5173 --listen unix:preview.sock"
)]
pub(in crate::cli) struct ForwardArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    /// Where to listen: a loopback address and a port (0: any), or unix:PATH; default: 127.0.0.1 and the same port
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", value_parser = parse_listen)]
    listen: Option<Listen>,
    /// The terminal's id
    #[arg(value_name = "TERMINAL")]
    terminal: String,
    /// The port in its sandbox
    #[arg(value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

/// Where this process listens.
#[derive(Debug, Clone)]
enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return if path.is_empty() {
            Err("unix: has no path".to_owned())
        } else {
            Ok(Listen::Unix(path.into()))
        };
    }
    let address: SocketAddr =
        text.parse().map_err(|_| "write ADDRESS:PORT, as 127.0.0.1:8080, or unix:PATH".to_owned())?;
    if address.ip().is_loopback() {
        Ok(Listen::Tcp(address))
    } else {
        // Every machine that reaches this host would reach the sandbox.
        Err(format!("{} is no loopback address", address.ip()))
    }
}

/// A listener, which takes its file with it.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, BoundSocket),
}

/// Both halves of a connection.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listener {
    async fn bind(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Listen::Unix(path) => {
                let (listener, bound) = output_file::listen_at(path)?;
                Ok(Self::Unix(UnixListener::from_std(listener)?, bound))
            }
        }
    }

    fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
            }
            Self::Unix(_, socket) => format!("unix:{}", printable::path(socket.path())),
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            Self::Unix(listener, ..) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

/// Listens, and returns the status to exit with.
pub(in crate::cli) async fn forward(arguments: ForwardArguments) -> Result<u8, CliError> {
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let mut terminals = connection.client().terminals;
    let request = GetTerminalRequest { terminal_id: arguments.terminal.clone(), session_id: String::new() };
    let terminal = terminals.get_terminal(request).await?.into_inner().terminal.unwrap_or_default();
    let listen = arguments.listen.unwrap_or(Listen::Tcp(([127, 0, 0, 1], arguments.port).into()));
    let listener = Listener::bind(&listen).await.map_err(|error| {
        let shown = match &listen {
            Listen::Tcp(address) => address.to_string(),
            Listen::Unix(path) => printable::path(path).to_string(),
        };
        CliError::caused_by(format!("cannot listen at {shown}"), error)
            .with_advice("choose another place with --listen")
    })?;
    let said = stdio::print(&format!("{}\n", listener.address()));
    if said.map_err(|error| CliError::caused_by("cannot write to stdout", error))? == WriteOutcome::ReaderGone
    {
        return Ok(exit_status::BROKEN_PIPE);
    }
    let request = WaitForExitRequest { terminal_id: terminal.id.clone(), session_id: String::new() };
    let mut waiting = terminals.clone();
    let start =
        ForwardStart { terminal_id: terminal.id, session_id: String::new(), port: arguments.port.into() };
    tokio::select! {
        ended = waiting.wait_for_exit(request) => {
            ended?;
            Ok(0)
        }
        signal = signals.next() => Ok(exit_status::from_signal(signal)),
        never = serve(&listener, &terminals, &start) => match never {},
    }
}

async fn serve(listener: &Listener, terminals: &Terminals, start: &ForwardStart) -> Infallible {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Closed never.
        let Ok(place) = places.clone().acquire_owned().await else { continue };
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            // No descriptor is free, or the client has left already: the connections that there are go on.
            Err(error) => {
                stdio::print_notice(&format!("cannot accept a connection: {error}"));
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (terminals, start) = (terminals.clone(), start.clone());
        tokio::spawn(async move {
            if let Err(status) = carry(terminals, start, stream).await
                && status.code() != Code::Aborted
            {
                stdio::print_notice(status.message());
            }
            drop(place);
        });
    }
}

/// Carries one connection until both sides have ended.
async fn carry(mut terminals: Terminals, start: ForwardStart, stream: Box<dyn Stream>) -> Result<(), Status> {
    let (mut read, mut write) = tokio::io::split(stream);
    let (sender, requests) = mpsc::channel(QUEUED_MESSAGES);
    let message = |message| ForwardRequest { message: Some(message) };
    // The channel is empty.
    let _ = sender.try_send(message(Message::Start(start)));
    let mut responses = terminals.forward(ReceiverStream::new(requests)).await?.into_inner();
    let sending = async move {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            let data = buffer.get(..count).unwrap_or_default().to_vec();
            if sender.send(message(Message::Data(data.into()))).await.is_err() {
                break;
            }
        }
        // The gateway may have ended the call.
        let _ = sender.send(message(Message::EndOfInput(ForwardEndOfInput {}))).await;
        // The call goes on until its answers end.
        std::future::pending::<()>().await;
    };
    let receiving = async move {
        while let Some(response) = responses.message().await? {
            if let Some(Event::Data(data)) = response.event
                && write.write_all(&data).await.is_err()
            {
                return Ok(());
            }
        }
        let _ = write.shutdown().await;
        Ok::<_, Status>(())
    };
    tokio::select! {
        received = receiving => received,
        () = sending => Ok(()),
    }
}
