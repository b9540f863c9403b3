//! A name whose address changes between the check and the dial.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use crate::{fixture::Fixture, support::Session};

/// Answers every second question for an address with the first one, and the others with the second.
fn serve_names(server: UdpSocket, addresses: [Ipv4Addr; 2]) {
    thread::spawn(move || {
        let mut bytes = [0; 1_000];
        let mut answered = 0;
        while let Ok((count, asking)) = server.recv_from(&mut bytes) {
            let mut answer = bytes[..count].to_vec();
            let name_end = 12 + answer[12..].iter().position(|byte| *byte == 0).unwrap_or(0) + 1;
            answer.truncate(name_end + 4);
            let is_address = answer[name_end..name_end + 2] == [0, 1];
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
            if is_address {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                answer.extend(addresses[answered % 2].octets());
                answered += 1;
            }
            let _ = server.send_to(&answer, asking);
        }
    });
}

/// As a proxy would that looks the name up once for the check and once more for the dial.
fn look_up(server: &UdpSocket) -> Ipv4Addr {
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("it has a timeout");
    let question = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x06rebind\x05files\x04test\0\0\x01\0\x01";
    client.send_to(question, server.local_addr().expect("it has an address")).expect("it can be asked");
    let mut answer = [0; 1_000];
    let count = client.recv(&mut answer).expect("it answers");
    let octets: [u8; 4] = answer[count - 4..count].try_into().expect("an address");
    octets.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_changes_between_check_and_dial_is_not_reached() {
    let fixture = Fixture::start();
    let allowed: Ipv4Addr = fixture.address.parse().expect("an address");
    let [_, _, third, fourth] = allowed.octets();
    let other = Ipv4Addr::new(127, 84, third, fourth);
    let listener = TcpListener::bind((other, 18_080)).expect("nobody else has it");
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    thread::spawn(move || {
        while let Ok((mut peer, _)) = listener.accept() {
            count.fetch_add(1, SeqCst);
            let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nREACHED");
        }
    });
    let server = UdpSocket::bind((allowed, 0)).expect("a port is free");
    serve_names(server.try_clone().expect("a copy"), [allowed, other]);
    let at = server.local_addr().expect("it has an address");
    fs::write(fixture.directory.path().join("resolv.conf"), format!("nameserver {at}\n")).expect("a file");
    // Who looks twice checks one address and dials the other.
    assert_eq!([look_up(&server), look_up(&server)], [allowed, other]);
    let mut text = [0; 15];
    TcpStream::connect((other, 18_080))
        .and_then(|mut peer| peer.read_exact(&mut text))
        .expect("it is reached");
    assert_eq!(reached.load(SeqCst), 1);

    let session = Session::open(&fixture.gateway).await;
    let script = "for n in 1 2 3 4 5 6; do curl -s http://rebind.files.test:18080/; done; \
        for n in 1 2 3 4; do curl -s --noproxy '*' http://rebind.files.test:18080/ || echo refused; done";
    let done = fixture.sh(&session, script).finish().await;
    let text = done.text();
    assert!(text.contains("SERVED GET rebind.files.test") && text.contains("rule \"default\""), "{text}");
    assert!(!text.contains("REACHED") && reached.load(SeqCst) == 1, "{text}");
    session.close().await;
    fixture.gateway.stop();
}
