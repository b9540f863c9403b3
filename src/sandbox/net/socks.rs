//! The SOCKS5 proxy (RFC 1928): connections by name or address. A user (RFC 1929) is only a claim about the terminal.

use std::{io, net::Ipv6Addr, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    connector::{Connector, attempt},
    http::Tunnel,
    limits::FIRST_BYTES_TIMEOUT,
    outcome::{Refusal, Upstream},
    program::{ProgramEnd, Waiting},
    tunnel,
};
use crate::{
    network::destination::{Destination, Host},
    proto::net::Protocol,
};

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const COMMAND_NOT_SUPPORTED: u8 = 7;

/// What a program asks for: the host in the bytes that it sent.
struct Wanted {
    host: Vec<u8>,
    port: u16,
    terminal_id: String,
}

/// Serves one program.
pub(super) async fn serve(connector: Arc<Connector>, mut program: TcpStream) {
    let wanted = match timeout(FIRST_BYTES_TIMEOUT, greet(&mut program)).await {
        Ok(Ok(Some(wanted))) => wanted,
        Ok(Ok(None) | Err(_)) | Err(_) => return,
    };
    let end = ProgramEnd::of_tcp(&program).claiming(wanted.terminal_id);
    let asked = attempt(&wanted.host, wanted.port, Protocol::Socks, &end);
    // What the gateway allowed is what it could read.
    let destination = Host::parse(&asked.host).ok().map(|host| Destination { host, port: wanted.port });
    let upstream: Result<Upstream, Refusal> = connector.connect(asked, Waiting::Tcp(&program)).await;
    match (upstream, destination) {
        (Ok(upstream), Some(destination)) => {
            if answer(&mut program, SUCCEEDED).await.is_ok() {
                let approval = String::new();
                let tunnel = Tunnel { destination, protocol: Protocol::Socks, program: end, approval };
                tunnel::carry(&connector, program, upstream, tunnel).await;
            }
        }
        (Err(Refusal::Denied { .. }), _) | (Ok(_), None) => drop(answer(&mut program, NOT_ALLOWED).await),
        (Err(Refusal::Failed(_)), _) => drop(answer(&mut program, UNREACHABLE).await),
    }
}

/// Reads the greeting and the request. `None`: the program was answered, and there is nothing to be done.
async fn greet(program: &mut TcpStream) -> io::Result<Option<Wanted>> {
    if program.read_u8().await? != VERSION {
        return Ok(None);
    }
    let methods = read_counted(program).await?;
    let mut terminal_id = String::new();
    if methods.contains(&LOGIN) {
        program.write_all(&[VERSION, LOGIN]).await?;
        if program.read_u8().await? != LOGIN_VERSION {
            return Ok(None);
        }
        let user = read_counted(program).await?;
        read_counted(program).await?;
        terminal_id = String::from_utf8_lossy(&user).into_owned();
        program.write_all(&[LOGIN_VERSION, SUCCEEDED]).await?;
    } else if methods.contains(&NO_LOGIN) {
        program.write_all(&[VERSION, NO_LOGIN]).await?;
    } else {
        program.write_all(&[VERSION, NO_METHOD]).await?;
        return Ok(None);
    }
    let mut request = [0; 4];
    program.read_exact(&mut request).await?;
    let [VERSION, command, 0, kind] = request else { return Ok(None) };
    let host = match kind {
        IPV4 => {
            let mut address = [0; 4];
            program.read_exact(&mut address).await?;
            std::net::Ipv4Addr::from(address).to_string().into_bytes()
        }
        IPV6 => {
            let mut address = [0; 16];
            program.read_exact(&mut address).await?;
            Ipv6Addr::from(address).to_string().into_bytes()
        }
        NAME => read_counted(program).await?,
        _ => return Ok(None),
    };
    let port = program.read_u16().await?;
    if command != CONNECT {
        answer(program, COMMAND_NOT_SUPPORTED).await?;
        return Ok(None);
    }
    Ok(Some(Wanted { host, port, terminal_id }))
}

async fn read_counted(program: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(program.read_u8().await?)];
    program.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// The address in an answer says nothing: programs get none of the host's.
async fn answer(program: &mut TcpStream, code: u8) -> io::Result<()> {
    program.write_all(&[VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]).await
}
