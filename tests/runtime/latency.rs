//! What a command costs through the control socket, against a bare `posix_spawn`. Printed, not judged.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use provost::proto::supervisor::{Limits, Release, to_supervisor::Request};

use crate::client::{Client, Groups, Supervisor, WithoutGateway, command};

const ROUNDS: usize = 2000;

pub(crate) fn print() {
    let supervisor = Supervisor::start(Groups::All, WithoutGateway::GoOn);
    let mut client = supervisor.connect();
    let limits =
        Limits { memory_bytes: Some(1 << 30), pids: Some(512), cpu_millis: Some(2000), ..Limits::default() };
    let mut times: [Vec<Duration>; 5] = Default::default();
    for round in 0..ROUNDS {
        let began = Instant::now();
        let mut bare = Command::new("/bin/true");
        bare.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap().wait().unwrap();
        times[0].push(began.elapsed());
        let (spawned, ended, released) = once(&mut client, round, None);
        times[1].push(spawned);
        times[2].push(ended);
        times[3].push(released);
        times[4].push(once(&mut client, ROUNDS + round, Some(limits.clone())).2);
    }
    let names =
        ["posix_spawn + wait", "spawn → started", "spawn → exited", "spawn → released", "… with v1 limits"];
    println!("{:22} {:>9} {:>9} {:>9}", "µs", "median", "p90", "p99");
    for (name, mut times) in names.iter().zip(times) {
        times.sort();
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
        println!("{name:22} {:9.0} {:9.0} {:9.0}", at(50), at(90), at(99));
    }
    client.shut_down();
}

fn once(client: &mut Client, round: usize, limits: Option<Limits>) -> (Duration, Duration, Duration) {
    let id = format!("term_{round}");
    let mut spawn = command(&id, &["/bin/true"]);
    spawn.limits = limits;
    let began = Instant::now();
    client.spawn(spawn).unwrap();
    let spawned = began.elapsed();
    client.exit(&id);
    let ended = began.elapsed();
    client.done(Request::Release(Release { terminal_id: id }));
    (spawned, ended, began.elapsed())
}
