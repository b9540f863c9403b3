//! What the proxy of a sandbox costs: requests one after another, a long transfer, and many tunnels at once; the same client without a
//! proxy, through Provost, and through other proxies where the host has them; and the memory of the process that carries, after each round.
//!
//! Client and server are the same programs for all, and all take turns. `cargo bench --bench network -- [--rounds N] [--requests N]
//! [--mib N] [--tunnels N] [--only NAME]`

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use provost_test_support::{Gateway, Options, Process};
use support::{gateway, machine};
use tempfile::TempDir;

const ADDRESS: &str = "127.83.251.1";
const PORT: u16 = 18_090;
/// The port of the other proxies.
const PEER_PORT: u16 = 18_091;
const START_DEADLINE: Duration = Duration::from_secs(20);

const SERVER: &str = "
import asyncio, sys
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b'\\r\\n\\r\\n')
            length = int(head.split(b' ')[1][1:] or 0)
            writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % length)
            block = bytes(1 << 20)
            while length:
                writer.write(block[:length])
                await writer.drain()
                length -= min(length, len(block))
    except (OSError, asyncio.IncompleteReadError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]), backlog=4096)
    print('ready', flush=True)
    await server.serve_forever()
asyncio.run(main())
";

/// Prints three numbers: seconds for the requests, for the transfer, for the tunnels.
const CLIENT: &str = "
import asyncio, os, sys, time
kind, requests, mib, tunnels = sys.argv[1], *map(int, sys.argv[2:5])
host = 'bench.test' if kind == 'provost' else sys.argv[5]
port = int(sys.argv[6])
proxy = {'direct': None, 'relay': None, 'provost': ('127.0.0.1', 3128)}.get(kind, ('127.0.0.1', int(sys.argv[7])))
target = ('127.0.0.1', int(sys.argv[7])) if kind == 'relay' else (host, port)
async def connect():
    reader, writer = await asyncio.open_connection(*(proxy or target))
    if kind == 'microsocks':
        writer.write(b'\\5\\1\\0')
        assert await reader.readexactly(2) == b'\\5\\0'
        writer.write(b'\\5\\1\\0\\3' + bytes([len(host)]) + host.encode() + port.to_bytes(2, 'big'))
        assert (await reader.readexactly(10))[1] == 0
    elif proxy:
        writer.write(b'CONNECT %s:%d HTTP/1.1\\r\\nHost: %s:%d\\r\\n\\r\\n' % (host.encode(), port, host.encode(), port))
        assert b' 200' in (await reader.readuntil(b'\\r\\n\\r\\n')).split(b'\\r\\n')[0]
    return reader, writer
async def get(pair, length):
    pair[1].write(b'GET /%d HTTP/1.1\\r\\nHost: %s:%d\\r\\n\\r\\n' % (length, host.encode(), port))
    await pair[0].readuntil(b'\\r\\n\\r\\n')
    while length:
        length -= len(await pair[0].read(1 << 18))
async def main():
    began = time.monotonic()
    for _ in range(requests):
        pair = await connect()
        await get(pair, 100)
        pair[1].close()
    print(time.monotonic() - began)
    began = time.monotonic()
    await get(await connect(), mib << 20)
    print(time.monotonic() - began)
    began = time.monotonic()
    pairs = await asyncio.gather(*[connect() for _ in range(tunnels)])
    await asyncio.gather(*[get(pair, 100) for pair in pairs])
    print(time.monotonic() - began, flush=True)
asyncio.run(main())
";

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    let (rounds, requests) = (support::number("rounds", 5), support::number("requests", 300));
    let (mib, tunnels) = (support::number("mib", 512), support::number("tunnels", 1_000));
    println!("## Network by name\n");
    machine::print_facts();
    let directory = tempfile::Builder::new().prefix("provost-bench-").tempdir().expect("a directory");
    let sizes = [requests, mib, tunnels].map(|size| size.to_string());
    let bench = Bench { sizes, gateway: start_gateway(directory.path()), directory };
    let _server = bench.server();
    let peers = bench.peers();
    let mut candidates = vec!["direct", "provost"];
    candidates.extend(peers.iter().map(|(name, _)| *name));
    if let Some(only) = std::env::args().skip_while(|argument| argument != "--only").nth(1) {
        candidates.retain(|name| *name == only);
    }
    let mut seconds: Vec<[Vec<f64>; 3]> = candidates.iter().map(|_| Default::default()).collect();
    let mut memory_kib = Vec::new();
    for _ in 0..rounds {
        for (candidate, seconds) in candidates.iter().zip(&mut seconds) {
            for (all, one) in seconds.iter_mut().zip(bench.measure(candidate)) {
                all.push(one);
            }
        }
        memory_kib.push(carrying_kib());
    }
    println!(
        "| | a request on a connection of its own | MiB/s | {tunnels} tunnels at once |\n|---|---:|---:|---:|"
    );
    for (candidate, mut seconds) in candidates.into_iter().zip(seconds) {
        let [one, long, many] = seconds.each_mut().map(|values| median(values));
        let request_us = one / requests as f64 * 1e6;
        println!("| {candidate} | {request_us:.0} µs | {:.0} | {:.2} s |", mib as f64 / long, many);
    }
    println!("\nResident memory of the net process after each round, in KiB: {memory_kib:?}");
    for name in ["relay", "tinyproxy", "microsocks"] {
        if !peers.iter().any(|(peer, _)| *peer == name) {
            println!("\nSKIPPED: the program of {name} is not installed");
        }
    }
}

/// What the net processes that run take together.
fn carrying_kib() -> u64 {
    let processes = Process::all_marked("");
    processes.iter().filter(|one| one.field("Name") == "provost-net").map(|one| one.kib("VmRSS")).sum()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Bench {
    sizes: [String; 3],
    gateway: Arc<Gateway>,
    directory: TempDir,
}

/// A gateway that lets sandboxes reach the server by a name.
fn start_gateway(directory: &Path) -> Arc<Gateway> {
    let hosts = directory.join("hosts");
    fs::write(&hosts, format!("{ADDRESS} bench.test\n")).expect("a file");
    let config = Some(format!("[names]\nhosts = \"{}\"\n", hosts.display()));
    gateway::start_with(Options { policy: Some(allow_server), config, ..Options::default() })
}

fn allow_server(policy: &mut toml::Table) {
    let rule = format!(
        "id = \"bench\"\ndecision = \"allow\"\nhost = [\"bench.test\"]\naddress = [\"127.83.0.0/16\"]\nport = [{PORT}]\ntunnel = \"any\"\n"
    );
    let rule: toml::Table = rule.parse().expect("the rule is TOML");
    policy["connect"].as_array_mut().expect("the shipped policy has such rules").push(rule.into());
}

impl Bench {
    fn at(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn server(&self) -> Running {
        let mut server = Command::new("python3")
            .args(["-c", SERVER, ADDRESS, &PORT.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be started");
        let mut line = String::new();
        let out = server.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("the server says that it is ready");
        Running(server)
    }

    /// The proxies that this host has: one that forks for each connection, one that speaks HTTP, and one that speaks SOCKS.
    fn peers(&self) -> Vec<(&'static str, Running)> {
        let config = format!(
            "Port {}\nListen 127.0.0.1\nMaxClients 4096\nTimeout 600\nDisableViaHeader Yes\n",
            PEER_PORT + 1
        );
        fs::write(self.at("tinyproxy.conf"), config).expect("a file");
        let mut relay = Command::new("socat");
        relay.arg(format!("TCP-LISTEN:{PEER_PORT},bind=127.0.0.1,reuseaddr,fork,backlog=4096"));
        relay.arg(format!("TCP:{ADDRESS}:{PORT}"));
        let mut tinyproxy = Command::new("tinyproxy");
        tinyproxy.arg("-d").arg("-c").arg(self.at("tinyproxy.conf"));
        let mut microsocks = Command::new("microsocks");
        microsocks.args(["-i", "127.0.0.1", "-p", &(PEER_PORT + 2).to_string()]);
        let mut peers = Vec::new();
        for (name, mut command, port) in [
            ("relay", relay, PEER_PORT),
            ("tinyproxy", tinyproxy, PEER_PORT + 1),
            ("microsocks", microsocks, PEER_PORT + 2),
        ] {
            let Ok(process) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else { continue };
            let running = Running(process);
            let deadline = Instant::now() + START_DEADLINE;
            while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(Instant::now() < deadline, "{name} does not listen");
                std::thread::sleep(Duration::from_millis(10));
            }
            peers.push((name, running));
        }
        peers
    }

    /// Seconds for the requests, the transfer and the tunnels.
    fn measure(&self, candidate: &str) -> [f64; 3] {
        let peer_port = match candidate {
            "tinyproxy" => PEER_PORT + 1,
            "microsocks" => PEER_PORT + 2,
            _ => PEER_PORT,
        };
        let mut command = match candidate {
            "provost" => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
                command.args(["run", "--gateway", &self.gateway.address(), "--network", "proxy"]);
                command.args(["--session", "bench", "--", "python3"]);
                command
            }
            _ => Command::new("python3"),
        };
        let output = command
            .args(["-c", CLIENT, candidate])
            .args(&self.sizes)
            .args([ADDRESS, &PORT.to_string(), &peer_port.to_string()])
            .current_dir(gateway::workspace(&self.gateway))
            .output()
            .expect("the client can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        numbers.try_into().unwrap_or_else(|_| {
            panic!("{candidate}: {text}{}", String::from_utf8_lossy(&output.stderr));
        })
    }
}
