//! A scraper, made of sockets and text: it trusts no library with what the page looks like.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{Gateway, Options, eventually, within};

/// A gateway that serves metrics at a port of its own, with more of its configuration; and where.
pub(crate) async fn gateway(options: Options) -> (Arc<Gateway>, SocketAddr) {
    let more = options.config.clone().unwrap_or_default();
    let config = Some(format!("{more}\n[metrics]\nlisten = \"127.0.0.1:0\"\n"));
    let gateway = Gateway::start_with(Options { config, ..options });
    let address = address(&gateway).await;
    (gateway, address)
}

/// Where it serves them now: the port is the kernel's choice, and in the log.
pub(crate) async fn address(gateway: &Gateway) -> SocketAddr {
    eventually("the metrics' address in the log", || {
        let log = gateway.log_tail();
        let at = log.rfind("metrics.listen")?;
        let found: String = log[at..]
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(|c| c.is_ascii_digit() || ".:".contains(*c))
            .collect();
        found.parse().ok()
    })
    .await
}

/// What came back: the status, the head, the body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends these bytes and reads to the end.
pub(crate) async fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let answered = async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        // What is refused early may be closed before all of it was sent.
        let _ = stream.write_all(request).await;
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut piece).await {
            bytes.extend_from_slice(&piece[..length]);
        }
        String::from_utf8(bytes).expect("an answer is text")
    };
    let text = within("an answer to a request for metrics", answered).await;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// The metrics of one moment, by name and labels.
pub(crate) struct Metrics(BTreeMap<String, f64>);

/// Scrapes, and fails unless the page is well formed.
pub(crate) async fn scrape(address: SocketAddr) -> Metrics {
    let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("content-type: application/openmetrics-text"), "{}", answer.head);
    parsed(&answer.body)
}

pub(crate) fn parsed(page: &str) -> Metrics {
    assert!(page.ends_with("# EOF\n"), "the page is whole");
    let mut values = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?} is no sample"));
        assert!(name.starts_with("provost_"), "{line}");
        let value = value.parse().unwrap_or_else(|_| panic!("{line:?} has no number"));
        assert!(values.insert(name.to_owned(), value).is_none(), "{name} is there twice");
    }
    Metrics(values)
}

impl Metrics {
    /// The value of a sample that must be there.
    #[track_caller]
    pub(crate) fn of(&self, name: &str) -> f64 {
        *self.0.get(name).unwrap_or_else(|| panic!("there is no {name} among {:?}", self.0.keys()))
    }

    /// All names, with their labels.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Scrapes until the page is as wanted.
pub(crate) async fn until(address: SocketAddr, what: &str, wanted: impl Fn(&Metrics) -> bool) -> Metrics {
    let seen = async {
        loop {
            let metrics = scrape(address).await;
            if wanted(&metrics) {
                break metrics;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(what, seen).await
}
