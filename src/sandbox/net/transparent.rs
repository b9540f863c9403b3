//! Connections of programs that know no proxy, to an address that stands for a name.
//!
//! They are judged as a tunnel by CONNECT is: the name, its addresses, and that what is spoken is for that name.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::{
    connector::{Connector, attempt},
    http::Tunnel,
    program::{ProgramEnd, Waiting},
    tunnel,
};
use crate::{network::destination::Destination, proto::net::Protocol};

/// Serves one program. It has been accepted already: what is refused is reset.
pub(super) async fn serve(connector: Arc<Connector>, program: TcpStream, destination: Destination) {
    let host = destination.host.to_string();
    let end = ProgramEnd::of_tcp(&program);
    // Nobody says which terminal it is of.
    let asked = attempt(host.as_bytes(), destination.port, Protocol::Transparent, &end);
    match connector.connect(asked, Waiting::Tcp(&program)).await {
        Ok(upstream) => {
            let approval = String::new();
            let tunnel = Tunnel { destination, protocol: Protocol::Transparent, program: end, approval };
            tunnel::carry(&connector, program, upstream, tunnel).await;
        }
        Err(_) => drop(program.set_zero_linger()),
    }
}
