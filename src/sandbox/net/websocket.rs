//! Connections that become a websocket (RFC 6455): the request is judged as any other, and what follows the answer 101 is carried.
//!
//! No other protocol is changed to: what a server takes for the beginning of something else is not passed on.

use hyper::{
    Method, Request, Response, StatusCode, Version,
    header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;

use super::idle;

const WEBSOCKET: &str = "websocket";

/// Both ends of a connection that was changed.
#[derive(Debug)]
pub(super) struct Upgrade {
    program: OnUpgrade,
    server: OnUpgrade,
}

/// Takes the program's end from a request for a websocket. `None`: it is for something else.
pub(super) fn requested<B>(request: &mut Request<B>) -> Option<OnUpgrade> {
    let headers = request.headers();
    let has_body = headers.contains_key("content-length") || headers.contains_key("transfer-encoding");
    let is_one = request.method() == Method::GET && request.version() == Version::HTTP_11 && !has_body;
    (is_one && names_websocket(headers)).then(|| hyper::upgrade::on(request))
}

/// Asks the server for a websocket, too, or says to the program that it has one.
pub(super) fn set_headers(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// What becomes of a request for a websocket, when it is answered. `None`: the server says no, or something else.
pub(super) fn answered<B>(program: Option<OnUpgrade>, response: &mut Response<B>) -> Option<Upgrade> {
    let program = program?;
    let is_yes = response.status() == StatusCode::SWITCHING_PROTOCOLS && names_websocket(response.headers());
    is_yes.then(|| Upgrade { program, server: hyper::upgrade::on(response) })
}

/// Carries it until one side ends it.
pub(super) async fn carry(upgrade: Upgrade) {
    // The answer was not sent, or its connection is gone.
    if let (Ok(program), Ok(server)) = tokio::join!(upgrade.program, upgrade.server) {
        idle::copy(TokioIo::new(program), TokioIo::new(server)).await;
    }
}

fn names_websocket(headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(UPGRADE).iter();
    let is_websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes());
    let upgrades = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut upgrades = upgrades.flat_map(|value| value.split(',')).map(str::trim);
    named.next().is_some_and(is_websocket)
        && named.next().is_none()
        && upgrades.any(|token| token.eq_ignore_ascii_case("upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_a_websocket_is_one_and_no_other_protocol_is_changed_to() {
        let is_one = |method: &str, headers: &[(&str, &str)]| {
            let builder = headers.iter().fold(Request::builder().method(method), |builder, (name, value)| {
                builder.header(*name, *value)
            });
            requested(&mut builder.body(()).unwrap()).is_some()
        };
        let (connection, upgrade) = (("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket"));
        assert!(is_one("GET", &[connection, upgrade]));
        assert!(!is_one("POST", &[connection, upgrade]));
        assert!(!is_one("GET", &[connection, upgrade, ("content-length", "1")]));
        assert!(!is_one("GET", &[upgrade]) && !is_one("GET", &[connection]));
        assert!(!is_one("GET", &[connection, ("upgrade", "h2c")]));
        assert!(!is_one("GET", &[connection, ("upgrade", "websocket, h2c")]));
        assert!(!is_one("GET", &[connection, upgrade, ("upgrade", "h2c")]));
    }
}
