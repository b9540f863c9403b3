//! Strangers at the endpoint: whatever they do is bounded, and holds up neither commands nor an honest scraper.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    metrics::scrape::{ask, gateway, scrape},
    support::{Options, Session, code, in_session, within},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn everything_but_reading_the_page_is_refused_exactly() {
    let (_gateway, at) = gateway(Options::default()).await;
    for (line, status) in [
        ("GET /metrics", 200),
        ("GET /metrics?name[]=x", 200),
        ("HEAD /metrics", 200),
        ("POST /metrics", 405),
        ("DELETE /metrics", 405),
        ("OPTIONS /metrics", 405),
        ("GET /", 404),
        ("GET /metrics/", 404),
        ("GET //metrics", 404),
        ("GET /metrics/../../etc/passwd", 404),
        ("POST /provost.v1.Sessions/CreateSession", 404),
        ("GET http://elsewhere/secret", 404),
    ] {
        let answer = ask(at, format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        assert!(answer.head.contains("connection: close"), "{line}: {answer:?}");
        let has_body = status == 200 && !line.starts_with("HEAD");
        assert_eq!(answer.body.is_empty(), !has_body, "{line}: {answer:?}");
        if status == 405 {
            assert!(answer.head.contains("allow: get, head"), "{answer:?}");
        }
    }
    for malformed in
        [&b"\0\0\0\0\r\n\r\n"[..], b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00"]
    {
        let answer = ask(at, malformed).await;
        assert!(matches!(answer.status, 0 | 400 | 505), "{malformed:?}: {answer:?}");
    }
    // The preface of HTTP/2: there is none here.
    let answer = ask(at, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(matches!(answer.status, 0 | 400 | 405 | 404 | 505), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_head_without_an_end_is_not_kept() {
    let (gateway, at) = gateway(Options::default()).await;
    let before = gateway.process().resident_bytes();
    let long = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(10_000));
    let uri = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    for request in [&long, &many, &uri] {
        for _ in 0..20 {
            let answer = ask(at, request.as_bytes()).await;
            // The refusal may be lost where the rest of the request is still under way.
            assert!(matches!(answer.status, 0 | 400 | 414 | 431), "{answer:?}");
        }
    }
    let after = gateway.process().resident_bytes();
    assert!(after < before + (16 << 20), "60 MiB of heads took {} bytes", after - before);
    scrape(at).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: .ci/run runs it"]
async fn hundreds_that_say_nothing_hold_up_neither_a_scraper_nor_commands() {
    let (gateway, at) = gateway(Options::default()).await;
    in_session(&gateway, async |session| {
        let before = gateway.footprint().descriptors;
        let mut silent = Vec::new();
        for turn in 0..300 {
            let mut stream = within("a connection", TcpStream::connect(at)).await.expect("it listens");
            if turn % 2 == 0 {
                // It may be closed already.
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost").await;
            }
            silent.push(stream);
            if turn % 100 == 99 {
                let finished = session.command("true").finish().await;
                assert_eq!(code(&finished.outcome), 0);
                scrape(at).await;
            }
        }
        // Not one for each, but for as many as are served at once; and some of a command's own.
        let held = gateway.footprint().descriptors.saturating_sub(before);
        assert!(held < 100, "{held} descriptors are held for 300 connections");
        // The oldest were dropped for those that came after.
        let mut byte = [0];
        let dropped = within("the end of the first connection", silent[0].read(&mut byte)).await;
        assert!(matches!(dropped, Ok(0) | Err(_)), "{dropped:?}");
        // Those that are left are not kept for ever.
        let last = silent.last_mut().expect("there are some");
        let ended = within("the end of the last connection", last.read(&mut byte)).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_gateway_ends_in_time_while_a_client_is_connected() {
    let (gateway, at) = gateway(Options::default()).await;
    let session = Session::open(&gateway).await;
    let _silent = within("a connection", TcpStream::connect(at)).await.expect("it listens");
    session.close().await;
    gateway.stop();
    let refused = tokio::time::timeout(Duration::from_secs(10), TcpStream::connect(at)).await;
    assert!(matches!(refused, Ok(Err(_))), "nobody listens any more");
}
