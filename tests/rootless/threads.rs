//! The command line where the system gives no more threads: it says so and ends, whichever thread is refused.

use crate::rootless::user::{NOBODYS_ID, User, shown, text};

/// What the command line answers with when it is the one that failed.
const OWN_FAILURE: i32 = 125;

#[test]
fn without_threads_the_command_line_says_so_and_ends() {
    if !nix::unistd::geteuid().is_root() {
        // The limit counts all processes of an id: of one that other tests do not use.
        println!("SKIPPED: an id without other processes can only be had as root");
        return;
    }
    let Some(user) = User::find_as(NOBODYS_ID - 1) else { return };
    let provost = user.provost();
    let mut succeeded = false;
    for threads in (1..=24).chain([64]) {
        let limit = format!("--nproc={threads}");
        let line = ["timeout", "--kill-after=5", "120", "prlimit", &limit, provost.to_str().expect("UTF-8")];
        for rest in
            [&["run", "--", "true"][..], &["run", "--", "cat"], &["ps", "--gateway", "unix:/no/such/socket"]]
        {
            let output = user.outside(&[&line[..], rest].concat());
            let error = text(&output.stderr);
            assert!(!error.contains("panicked"), "{threads} threads, {rest:?}: {}", shown(&output));
            match output.status.code() {
                Some(0) => succeeded = true,
                Some(OWN_FAILURE) => assert!(error.starts_with("provost: "), "{threads}: {}", shown(&output)),
                _ => panic!("{threads} threads, {rest:?}: {}", shown(&output)),
            }
            if threads == 1 {
                assert!(error.contains("threads"), "{}", shown(&output));
            }
            // Enough threads for a gateway of one's own, a launcher, a supervisor and the command.
            assert!(threads < 64 || rest[0] == "ps" || output.status.success(), "{}", shown(&output));
        }
    }
    assert!(succeeded);
}
