//! What another user's commands cost while one user attacks: latency and the gateway's memory, by kind of attack.
//!
//! The victim is this process; the attacker runs under a uid of its own. Each kind has two gateways of its own: the victim's,
//! and another one that nobody else uses. The victim's commands are measured without an attack, with the attack on the other
//! gateway, and with the attack on its own: the attacker's processes, and a gateway that serves them, take the same
//! processors in both, so that what is beyond the second is what the victim's gateway lets through. They take turns, a part
//! of the rounds at a time. Needs root, for the other uid.
//! `cargo bench --bench flood -- [--rounds N] [--only WORD]`

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::{
    fs::{self, File, Permissions},
    io::{BufRead, BufReader},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{PermissionsExt, chown},
            process::CommandExt,
        },
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{Uid, seteuid},
};
use provost_test_support::{Attack, Gateway};
use support::{gateway, machine, statistics::Samples};

const ATTACKER: u32 = 54_322;
/// Bytes of arguments of a large request.
const LARGE_BYTES: usize = 900_000;

/// Parts that the rounds are made in, in turns without and with attacks.
const PARTS: usize = 4;
/// Bytes of output that an attacker's command leaves, to be asked for.
const OUTPUT_BYTES: u64 = 1 << 20;

/// Kinds of `tests/attacks/flood.c`, with connections and streams.
const KINDS: [(&str, &str, u32, u32); 10] = [
    ("many connections", "connections", 2_000, 0),
    ("silent connections", "silent", 2_000, 0),
    ("slow handshakes", "handshake", 2_000, 0),
    ("slow headers", "headers", 2_000, 0),
    ("half-sent bodies", "bodies", 8, 48),
    ("claimed lengths", "claims", 8, 512),
    ("crumbs", "crumbs", 8, 256),
    ("pings", "pings", 16, 0),
    ("settings", "settings", 16, 0),
    ("rapid resets", "resets", 16, 0),
];

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## Floods\n");
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: another user needs root");
        return;
    }
    machine::print_facts();
    println!(
        "| attack | median ms: none | elsewhere | here | p90 ms: none | elsewhere | here | p99 ms: none | elsewhere | here | MiB before | during |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (name, kind, connections, streams) in KINDS {
        runtime.block_on(measure(name, |place| place.flood(kind, connections, streams, &["/"])));
    }
    let loops = [
        ("lists in a loop", "calls", "/provost.v1.Terminals/ListTerminals"),
        ("outputs in a loop", "calls", "/provost.v1.Terminals/GetOutput"),
        ("answers not taken", "unread", "/provost.v1.Terminals/GetOutput"),
    ];
    for (name, kind, path) in loops {
        let field =
            |place: &Place| if path.ends_with("Output") { place.terminal.clone() } else { String::new() };
        runtime.block_on(measure(name, |place| place.flood(kind, 16, 64, &[&field(place), path])));
    }
    runtime.block_on(measure("refused creates in a loop", |place| {
        place.flood("calls", 16, 64, &["sess_none", "/provost.v1.Terminals/CreateTerminal"])
    }));
    runtime.block_on(measure("large requests", Place::large_requests));
    runtime.block_on(measure("a hung mount", Place::hung_mount));
}

/// Measures a victim without an attack, with one elsewhere, and with one on its gateway.
async fn measure(name: &str, begin: impl Fn(&Place) -> Attacking) {
    let only = std::env::args().skip_while(|argument| argument != "--only").nth(1);
    if only.is_some_and(|only| !name.contains(&only)) {
        return;
    }
    let rounds = support::number("rounds", 1_000) / PARTS;
    let (gateway, other) = (gateway::start(), gateway::start());
    let (place, elsewhere) = (Place::open(&gateway).await, Place::open(&other).await);
    let mut client = gateway::connect(&gateway).await;
    let session = gateway::open_session(&gateway, &mut client).await;
    for _ in 0..20 {
        gateway::run(&mut client, gateway::command(&session, &["true"])).await;
    }
    let memory_before = gateway.process().resident_bytes() >> 20;
    let mut memory_during = 0;
    let mut samples: [Samples; 3] = Default::default();
    for _ in 0..PARTS {
        let [none, far, near] = &mut samples;
        commands(&mut client, &session, rounds, none).await;
        let attacking = begin(&elsewhere);
        commands(&mut client, &session, rounds, far).await;
        drop(attacking);
        // What that attack leaves to its gateway to clear away belongs to no figure.
        commands(&mut client, &session, rounds / 10, &mut Samples::default()).await;
        let attacking = begin(&place);
        commands(&mut client, &session, rounds, near).await;
        memory_during = memory_during.max(gateway.process().resident_bytes() >> 20);
        drop(attacking);
        commands(&mut client, &session, rounds / 10, &mut Samples::default()).await;
    }
    let ms = |percent| {
        let of = |one: &Samples| format!("{:.2}", one.percentile(percent).as_secs_f64() * 1e3);
        samples.iter().map(of).collect::<Vec<_>>().join(" | ")
    };
    println!("| {name} | {} | {} | {} | {memory_before} | {memory_during} |", ms(50), ms(90), ms(99));
    gateway::close_session(&mut client, &session).await;
}

async fn commands(client: &mut provost::client::Client, session: &str, rounds: usize, samples: &mut Samples) {
    for _ in 0..rounds {
        let begun = Instant::now();
        gateway::run(client, gateway::command(session, &["true"])).await;
        samples.add(begun.elapsed());
    }
}

/// A gateway's directory, open to the attacker, and a terminal of the attacker's there.
struct Place {
    directory: PathBuf,
    socket: PathBuf,
    terminal: String,
}

impl Place {
    async fn open(gateway: &Gateway) -> Self {
        let (socket, directory) = (gateway.socket.clone(), gateway.directory().to_owned());
        let work = directory.join("attacker");
        fs::create_dir(&work).expect("a directory can be made");
        chown(&work, Some(ATTACKER), Some(ATTACKER)).expect("root can give it away");
        // The kernel reports the uid that connects.
        seteuid(Uid::from_raw(ATTACKER)).expect("root can be another");
        let mut client = gateway::connect(gateway).await;
        seteuid(Uid::from_raw(0)).expect("and root again");
        let session = gateway::open_session_in(&mut client, work).await;
        let zeros = ["head", "-c", &OUTPUT_BYTES.to_string(), "/dev/zero"];
        let terminal = gateway::create_and_wait(&mut client, gateway::command(&session, &zeros)).await;
        Self { directory, socket, terminal }
    }

    fn flood(&self, kind: &str, connections: u32, streams: u32, field_and_path: &[&str]) -> Attacking {
        let program = Attack::compiled("flood").placed_in(&self.directory);
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is ours");
        let mut child = Command::new(program)
            .arg(&self.socket)
            .args([kind, &connections.to_string(), &streams.to_string()])
            .args(field_and_path)
            .uid(ATTACKER)
            .gid(ATTACKER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the attack can be started");
        let stdout = child.stdout.take().expect("it was asked for");
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready).expect("the attack speaks");
        Attacking { children: vec![child], mount: None }
    }

    /// Two loops of commands with as many bytes as a request may have.
    fn large_requests(&self) -> Attacking {
        let (program, work) = (self.directory.join("provost"), self.directory.join("attacker"));
        if !program.exists() {
            fs::copy(gateway::PROVOST, &program).expect("the program can be copied");
        }
        let words = vec!["/x".repeat(40); LARGE_BYTES / 81].join(" ");
        fs::write(work.join("words"), words).expect("a file can be written");
        let script = format!(
            "while :; do xargs -s 1200000 -a words {} run --gateway unix:{} -- true >/dev/null 2>&1; done",
            program.display(),
            self.socket.display()
        );
        let one = |_| {
            Command::new("/bin/sh")
                .args(["-c", &script])
                .current_dir(&work)
                .uid(ATTACKER)
                .gid(ATTACKER)
                .process_group(0)
                .spawn()
                .expect("the attack can be started")
        };
        let children = (0..2).map(one).collect();
        // The first of them are on their way; there is no sign of it but time.
        std::thread::sleep(Duration::from_millis(500));
        Attacking { children, mount: None }
    }

    /// Sessions on a FUSE mount whose server never answers.
    fn hung_mount(&self) -> Attacking {
        let at = self.directory.join("hung");
        fs::create_dir_all(&at).expect("a directory can be made");
        let device = File::options().read(true).write(true).open("/dev/fuse").expect("the host has FUSE");
        let options = format!(
            "fd={},rootmode=40000,user_id={ATTACKER},group_id={ATTACKER},allow_other",
            device.as_raw_fd()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("provost-bench"), &at, Some("fuse"), flags, Some(options.as_str())).expect("it mounts");
        let mut attacking = self.flood("sessions", 4, 16, &[&at.display().to_string()]);
        attacking.mount = Some((at, device));
        attacking
    }
}

/// A running attack; ended with this.
#[derive(Default)]
struct Attacking {
    children: Vec<Child>,
    mount: Option<(PathBuf, File)>,
}

impl Drop for Attacking {
    fn drop(&mut self) {
        for mut child in std::mem::take(&mut self.children) {
            // A loop of commands has a group of its own; anything else is one process.
            let group = nix::unistd::Pid::from_raw(-child.id().cast_signed());
            let _ = nix::sys::signal::kill(group, nix::sys::signal::Signal::SIGKILL);
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some((at, device)) = self.mount.take() {
            umount2(&at, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).expect("it can be unmounted");
            drop(device);
        }
    }
}
