//! What bounds all sandboxes of a principal together, and whom the kernel ends first when memory runs out.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use crate::support::{
    Gateway, Options, Process, Session, api::ExitCause, eventually, in_session, is_root, skip,
};

/// A process with this capability may lower a score.
const CAP_SYS_RESOURCE: u64 = 1 << 24;
/// Another principal.
const OTHER: u32 = 54_371;

fn bounded(config: &str) -> Arc<Gateway> {
    Gateway::start_with(Options { config: Some(config.to_owned()), ..Options::default() })
}

/// What an attack has printed as `NAME=NUMBER`.
pub(crate) fn number(text: &str, name: &str) -> i64 {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {text:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_a_principal_share_its_processes_and_other_principals_have_their_own() {
    if !is_root() {
        return skip("only root can be two principals");
    }
    let gateway = bounded("[quotas]\npids_per_principal = 100\n");
    in_session(&gateway, async |one| {
        in_session(&gateway, async |two| {
            let other = Session::open_as(&gateway, OTHER).await;
            let holder = one.attack("bomb").args(["fork", "70", "stay"]).create().await;
            assert_eq!(number(&holder.until("error").await, "made"), 70, "each session alone may have more");
            let second = two.attack("bomb").args(["fork", "70"]).finish().await;
            assert!((1..30).contains(&number(&second.text(), "made")), "{}", second.text());
            assert!(second.text().contains("error=EAGAIN"), "{}", second.text());
            let elsewhere = other.attack("bomb").args(["fork", "70"]).finish().await;
            assert_eq!(number(&elsewhere.text(), "made"), 70, "{}", elsewhere.text());
            holder.kill(Some(Duration::ZERO)).await;
            holder.wait().await;
            let again = two.attack("bomb").args(["fork", "70"]).finish().await;
            assert_eq!(number(&again.text(), "made"), 70, "{}", again.text());
            other.close().await;
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_a_principal_share_its_memory_also_after_a_restart() {
    if !is_root() {
        return skip("only root can be two principals");
    }
    let gateway = bounded("[quotas]\nmemory_bytes_per_principal = 201_326_592\n");
    let mut one = Session::open(&gateway).await;
    let holder = one.sh("head -c 120000000 /dev/zero > /tmp/held; echo held; exec sleep 1000").create().await;
    holder.until("held").await;
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    one.go_on(&caller);
    // The sandbox of the gateway before, and one of this gateway.
    in_session(&gateway, async |two| {
        let bomb = two.attack("bomb").args(["heap", "300"]).finish().await;
        assert_eq!(bomb.outcome.cause(), ExitCause::MemoryLimit, "{:?} {}", bomb.outcome, bomb.text());
    })
    .await;
    let other = Session::open_as(&gateway, OTHER).await;
    let elsewhere = other.attack("bomb").args(["heap", "150"]).finish().await;
    assert_eq!(elsewhere.text(), "touched=150\n");
    other.close().await;
    one.close().await;
    // No level of a principal is left where no sandbox is.
    eventually("the principals' groups are gone", || {
        let left =
            gateway.group.groups().into_iter().any(|group| group.to_string_lossy().contains("/principal-"));
        (!left).then_some(())
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sandboxes_are_made_below_their_principal_in_every_hierarchy() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let idle = session.idle(&session.marker()).create().await;
        let level = format!("/principal-{}/sbx_", nix::unistd::geteuid());
        let groups = gateway.group.groups();
        let sandboxes: Vec<_> = groups
            .iter()
            .filter(|group| group.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sbx_")))
            .collect();
        assert!(!sandboxes.is_empty(), "{groups:?}");
        assert!(sandboxes.iter().all(|group| group.to_string_lossy().contains(&level)), "{sandboxes:?}");
        idle.release().await;
    })
    .await;
}

/// Two principals at their bounds of 80 % would have more than there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_principals_together_leave_a_part_of_the_host() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let idle = session.idle(&session.marker()).create().await;
        let groups = gateway.group.groups();
        let is_level = |group: &&PathBuf| {
            group.file_name().is_some_and(|name| name.to_string_lossy().starts_with("principal-"))
        };
        let memory = fs::read_to_string("/proc/meminfo").expect("every Linux has it");
        let memory =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("it says how much");
        let memory: u64 = memory.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10;
        let mut held = Vec::new();
        for level in groups.iter().filter(is_level) {
            let above = level.parent().expect("the gateway's group");
            for name in ["memory.max", "memory.limit_in_bytes", "pids.max"] {
                // Where the controller is not there the level of a principal has no such file either.
                if !level.join(name).exists() {
                    continue;
                }
                let bound = fs::read_to_string(above.join(name)).expect("the group above has the file, too");
                let bound: u64 = bound.trim().parse().unwrap_or_else(|_| panic!("{name}: {bound:?}"));
                let own = fs::read_to_string(level.join(name)).expect("a file").trim().parse::<u64>();
                assert!(own.is_ok_and(|own| own <= bound), "{name}: {bound}");
                if name.starts_with("memory") {
                    assert!(bound <= memory / 100 * 91, "{name}: {bound} of {memory}");
                }
                held.push(name);
            }
        }
        if held.is_empty() {
            skip("no controllers");
        }
        idle.release().await;
    })
    .await;
    gateway.stop();
}

fn score(pid: u32) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap_or_default();
    text.trim().parse().unwrap_or_else(|_| panic!("no score of {pid}: {text:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_are_ended_first_then_supervisors_and_the_gateway_last() {
    let gateway = Gateway::start();
    let own = Process::read(std::process::id()).expect("this process is there");
    let capabilities = u64::from_str_radix(own.field("CapEff"), 16).expect("a mask");
    if capabilities & CAP_SYS_RESOURCE != 0 {
        let lowered = || (score(gateway.pid_now()) == -900).then_some(());
        eventually("the gateway's own score", lowered).await;
    } else {
        println!("without CAP_SYS_RESOURCE a gateway keeps the score that it was started with");
    }
    let protected = score(gateway.pid_now());
    in_session(&gateway, async |session| {
        let marker = session.marker();
        let script = format!("(exec sleep 1000 {marker}) 2>/dev/null & exec {} idle {marker}", "\"$0\"");
        let program = crate::support::Attack::compiled("escape").placed_in(&session.workspace);
        let terminal =
            session.command("sh").args(["-c", &script, &program.display().to_string()]).create().await;
        terminal.until("ready").await;
        for process in Process::all_marked(&marker) {
            assert_eq!(score(process.pid), 500, "{}", process.command_line());
        }
        // What a command says of its own is refused.
        let lowered =
            session.sh("echo -1000 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj").finish().await;
        assert!(lowered.text().ends_with("500\n"), "{}", lowered.text());
        // The supervisors: the processes in the group other than the gateway and commands.
        eventually("supervisors between the two", || {
            let others: Vec<i32> = gateway
                .group
                .processes()
                .into_iter()
                .filter(|pid| *pid != gateway.pid_now())
                .filter_map(Process::read)
                .filter(|process| !process.command_line().contains(&marker) && !process.is_zombie())
                .map(|process| score(process.pid))
                .collect();
            (!others.is_empty() && others.iter().all(|score| *score == 100)).then_some(())
        })
        .await;
        assert!(protected < 100);
        terminal.release().await;
    })
    .await;
}
