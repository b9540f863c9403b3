//! Real work under the shipped profile: what people's tools execute runs, and what cannot be verified is refused with its reason.
//!
//! Each tool works on something that is there: nothing is fetched.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use provost::proto::v1::ExecDenialCause;

use crate::{
    gate::told::without_gate,
    support::{Gateway, Session, code, in_session},
};

/// Whether a tool of the host is one that a sandbox shows.
fn is_there(tool: &str) -> bool {
    let found =
        ["/usr/bin", "/bin", "/usr/local/bin"].iter().any(|place| Path::new(place).join(tool).exists());
    if !found {
        println!("SKIPPED: {tool} is not there");
    }
    found
}

fn write(session: &Session, path: &str, text: &str) {
    let path = session.workspace.join(path);
    fs::create_dir_all(path.parent().expect("it has one")).expect("a directory can be made");
    fs::write(&path, text).expect("a file can be made");
    if text.starts_with("#!") {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
}

/// Runs a line, which ends with 0 and has nothing refused. Its output.
async fn works(session: &Session, line: &str) -> String {
    let done = session.sh(line).retain(1 << 20).finish().await;
    assert_eq!(code(&done.outcome), 0, "{line}: {}", done.text());
    assert!(done.outcome.exec_denials.is_empty(), "{line}: {:?}", done.outcome.exec_denials);
    done.text()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn make_starts_what_its_file_says() {
    if !is_there("make") {
        return;
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let targets: Vec<String> = (0..100).map(|number| format!("t{number}")).collect();
        write(
            session,
            "Makefile",
            &format!(
                "all: {}\n\t@cat t* | wc -l\nt%:\n\t@sh -c 'echo $@' | tee $@ >/dev/null\n",
                targets.join(" ")
            ),
        );
        assert_eq!(works(session, "make -s -j4").await.trim(), "100");
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn npm_installs_from_a_directory_and_runs_its_scripts() {
    if !is_there("npm") {
        return;
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        write(session, "package.json", r#"{"name":"app","version":"1.0.0","scripts":{"test":"thing"}}"#);
        write(
            session,
            "thing/package.json",
            r#"{"name":"thing","version":"1.0.0","bin":{"thing":"thing.js"},"scripts":{"install":"sh -c 'echo built > built'"}}"#,
        );
        write(session, "thing/thing.js", "#!/usr/bin/env node\nconsole.log('it ' + require('child_process').execFileSync('echo', ['works']))\n");
        works(session, "npm install --offline --no-audit --no-fund --foreground-scripts ./thing").await;
        assert!(session.workspace.join("thing/built").exists(), "the install script ran");
        assert!(works(session, "npm test").await.contains("it works"));
    })
    .await;
    gateway.stop();
}

/// A wheel of one module, made with nothing but Python itself.
const MAKE_WHEEL: &str = r#"
import zipfile
info = 'local_thing-1.0.dist-info'
with zipfile.ZipFile('local_thing-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('local_thing.py', 'def main():\n    print("installed")\n')
    wheel.writestr(f'{info}/METADATA', 'Metadata-Version: 2.1\nName: local-thing\nVersion: 1.0\n')
    wheel.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr(f'{info}/entry_points.txt', '[console_scripts]\nlocal-thing = local_thing:main\n')
    wheel.writestr(f'{info}/RECORD', '')
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pip_installs_a_wheel_and_what_it_installs_runs() {
    if !is_there("python3") {
        return;
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        write(session, "make_wheel.py", MAKE_WHEEL);
        works(session, "python3 make_wheel.py").await;
        if code(&session.sh("python3 -m pip --version").finish().await.outcome) != 0 {
            println!("SKIPPED: pip is not there");
            return;
        }
        works(session, "python3 -m pip install -q --no-index --no-deps --target lib --break-system-packages ./local_thing-1.0-py3-none-any.whl").await;
        assert_eq!(works(session, "PYTHONPATH=lib lib/bin/local-thing").await.trim(), "installed");
    })
    .await;
    gateway.stop();
}

const MULTIPROCESSING: &str = r#"
import multiprocessing, subprocess, sys
def work(number):
    return int(subprocess.run(['expr', str(number), '+', '1'], capture_output=True, check=True).stdout)
if __name__ == '__main__':
    for method in ['fork', 'spawn', 'forkserver']:
        with multiprocessing.get_context(method).Pool(4) as pool:
            print(method, sum(pool.map(work, range(20))))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pythons_pools_of_processes_work_in_every_way_that_it_starts_them() {
    if !is_there("python3") {
        return;
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        write(session, "pools.py", MULTIPROCESSING);
        assert_eq!(works(session, "python3 pools.py").await, "fork 210\nspawn 210\nforkserver 210\n");
    })
    .await;
    gateway.stop();
}

/// Threads that start programs at once, as a test runner's do.
const THREADS: &str = r#"
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
extern char **environ;
static void *work(void *unused) {
    long good = 0;
    for (int i = 0; i < 25; i++) {
        pid_t child;
        int status = 1;
        char *argv[] = {"true", NULL};
        if (!posix_spawnp(&child, "true", NULL, NULL, argv, environ)) waitpid(child, &status, 0);
        good += status == 0;
    }
    return (void *)good;
}
int main(void) {
    pthread_t threads[8];
    long good = 0;
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 8; i++) {
        void *one;
        pthread_join(threads[i], &one);
        good += (long)one;
    }
    printf("%ld\n", good);
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compiler_works_and_what_it_made_starts_programs_from_eight_threads() {
    if !is_there("cc") {
        return;
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        write(session, "threads.c", THREADS);
        assert_eq!(works(session, "cc -o threads threads.c -lpthread && ./threads").await.trim(), "200");
    })
    .await;
    gateway.stop();
}

/// Tests that each start programs, on as many threads as the runner has.
const TESTS_IN_RUST: &str = r#"
fn start() {
    for _ in 0..10 {
        assert!(std::process::Command::new("true").status().unwrap().success());
    }
}
#[test] fn one() { start() }
#[test] fn two() { start() }
#[test] fn three() { start() }
#[test] fn four() { start() }
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cargo_builds_and_runs_tests_that_start_programs_from_four_threads() {
    // As the preset for Rust has it.
    let gateway = Gateway::with_policy(|policy| {
        policy["profile"]["workspace"]
            .as_table_mut()
            .expect("it is a table")
            .insert("toolchains".to_owned(), vec!["rust"].into());
    });
    in_session(&gateway, async |session| {
        if code(&session.sh("cargo --version").finish().await.outcome) != 0 {
            println!("SKIPPED: neither the host nor the caller's home has cargo");
            return;
        }
        write(
            session,
            "Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        );
        write(session, "src/lib.rs", TESTS_IN_RUST);
        let line = "CARGO_HOME=$PWD/home cargo test -q --offline --lib -- --test-threads=4";
        let output = works(session, line).await;
        assert!(output.contains("4 passed"), "{output}");
    })
    .await;
    gateway.stop();
}

const MAIN_IN_JAVA: &str = r#"
import java.util.ArrayList;
import java.util.concurrent.*;
public class Main {
    public static void main(String[] args) throws Exception {
        var pool = Executors.newFixedThreadPool(4);
        var started = new ArrayList<Future<Integer>>();
        for (int i = 0; i < 16; i++) started.add(pool.submit(() -> new ProcessBuilder("true").start().waitFor()));
        int ended = 0;
        for (var one : started) if (one.get() == 0) ended++;
        pool.shutdown();
        System.out.println("ended " + ended);
    }
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jvm_compiles_a_class_and_its_threads_start_programs() {
    if !is_there("javac") {
        return;
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        write(session, "Main.java", MAIN_IN_JAVA);
        assert!(works(session, "javac Main.java && java Main").await.contains("ended 16"));
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_headless_browser_runs_a_pages_script() {
    let names = ["chromium-headless-shell", "chromium"];
    let Some(browser) = names.into_iter().find(|name| is_there(name)) else { return };
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let script = "document.getElementById('x').textContent = 'it ' + 'works'";
        write(session, "page.html", &format!("<p id=x>no</p><script>{script}</script>"));
        // Its own sandbox needs namespaces within the session's.
        let options = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom";
        let output = works(session, &format!("{browser} {options} file://$PWD/page.html")).await;
        assert!(output.contains("it works"), "{output}");
    })
    .await;
    gateway.stop();
}

const HELD: &str = r#"
#include <stdio.h>
#include <unistd.h>
volatile int answer;
int main(void) {
    answer = 42;
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_debugger_attaches_to_a_process_that_runs() {
    if !is_there("gdb") || !is_there("cc") {
        return;
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        write(session, "held.c", HELD);
        let line = "cc -g -o held held.c && mkfifo ready && { ./held >ready & } && held=$! && read -r word <ready && \
                    gdb -q -nx -batch -p $held -ex 'print answer' -ex detach; kill $held";
        let output = works(session, line).await;
        assert!(output.contains("$1 = 42"), "{output}");
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_started_under_a_debugger_is_refused_with_the_reason_or_runs_without_a_gate() {
    if !is_there("gdb") {
        return;
    }
    let line = "gdb -q -nx -batch -ex 'set startup-with-shell off' -ex 'set disable-randomization off' -ex run --args /bin/echo ran";
    let (gated, plain) = (Gateway::start(), Gateway::with_policy(without_gate));
    in_session(&plain, async |session| {
        let done = session.sh(line).finish().await;
        assert!(done.text().lines().any(|line| line == "ran"), "it works without a gate: {}", done.text());
    })
    .await;
    in_session(&gated, async |session| {
        let done = session.sh(line).finish().await;
        assert!(!done.text().lines().any(|line| line == "ran"), "{}", done.text());
        let denials = &done.outcome.exec_denials;
        let traced = denials.iter().find(|one| one.cause() == ExecDenialCause::Traced);
        assert!(traced.is_some_and(|one| one.reason.contains("traces it")), "{denials:?}: {}", done.text());
    })
    .await;
    gated.stop();
    plain.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strace_is_refused_by_the_filter_with_a_gate_and_without_one() {
    if !is_there("strace") {
        return;
    }
    for gateway in [Gateway::start(), Gateway::with_policy(without_gate)] {
        in_session(&gateway, async |session| {
            let done = session.sh("strace -o trace /bin/echo ran").finish().await;
            let text = done.text();
            assert!(!text.contains("ran\n") && text.contains("PTRACE_SEIZE"), "{text}");
            assert!(text.contains("Operation not permitted"), "{text}");
        })
        .await;
        gateway.stop();
    }
}
