//! Real tools, through `provost run` and without it: what they print, how they end and every byte that they write
//! must be the same.
//!
//! Each project is made by its test, at the same path for both runs, with fixed times, so that what tools write of
//! paths and times cannot differ. Nothing is fetched from anywhere.

mod comparison;
mod directories;
mod toolchains;

use std::{fmt::Write as _, path::Path};

use comparison::{Comparison, Run};
use toolchains::find;

#[test]
fn a_git_repository_is_cloned_and_committed_to() {
    let Some(git) = find("git") else { return };
    let script = "set -e
        git init -q -b main origin
        cd origin
        for n in 1 2 3 4 5 6 7 8; do echo \"line $n\" >> story.txt; git add story.txt; git commit -q -m \"chapter $n\"; done
        git tag -a v1 -m 'first'
        cd ..
        git clone -q origin copy
        cd copy
        git switch -q -c work
        printf 'new\\n' > new.txt; chmod +x new.txt; ln -s new.txt link
        git add .; git commit -q -m 'work'
        git rebase -q main; git merge-base --is-ancestor main work
        git push -q origin work
        git log --graph --format='%H %T %an %cI %s' --all
        git ls-files -s
        git fsck --strict
        git gc -q --no-cruft
        git verify-pack -v .git/objects/pack/*.idx | grep -c commit";
    let mut run = Run::shell(script).with_tool(&git);
    for (name, value) in [
        ("GIT_AUTHOR_NAME", "A. Author"),
        ("GIT_AUTHOR_EMAIL", "author@example.org"),
        ("GIT_AUTHOR_DATE", "2001-02-03T04:05:06Z"),
        ("GIT_COMMITTER_NAME", "A. Author"),
        ("GIT_COMMITTER_EMAIL", "author@example.org"),
        ("GIT_COMMITTER_DATE", "2001-02-03T04:05:06Z"),
    ] {
        run = run.with_env(name, value);
    }
    // The index records inode numbers and times of the files; `ls-files -s` above shows what it stands for.
    Comparison::of("git", |_| {}, &run).except(|path| path.ends_with(".git/index")).succeed();
}

#[test]
fn a_python_test_suite_passes() {
    let Some(python) = find("python3") else { return };
    let run = Run::program(&python, &["-m", "unittest", "-v", "suite"]);
    Comparison::of("python", |work| directories::write(work, "suite.py", include_str!("suite.py")), &run)
        .masking(|line| line.starts_with("Ran "))
        .succeed();
}

#[test]
fn a_cargo_project_is_built_and_tested_offline() {
    let Some(cargo) = find("cargo") else { return };
    let prepare = |work: &Path| {
        directories::write(
            work,
            "Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        );
        directories::write(work, "build.rs", "fn main() { println!(\"cargo::rustc-env=BUILT=yes\"); }\n");
        directories::write(
            work,
            "src/lib.rs",
            "/// ```\n/// assert_eq!(small::twice(2), 4);\n/// ```\npub fn twice(n: u32) -> u32 { n * 2 }\n\
             #[test]\nfn twice_is_twice() { assert_eq!(twice(21), 42); }\n",
        );
        directories::write(
            work,
            "src/main.rs",
            "fn main() { println!(\"{} {}\", small::twice(21), env!(\"BUILT\")); }\n",
        );
    };
    let script = "set -e; cargo build --offline --quiet; cargo test --offline --quiet; ./target/debug/small";
    let run = Run::shell(script)
        .with_tool(&cargo)
        .with_env("CARGO_HOME", "@WORK@/cargo-home")
        .with_env("CARGO_INCREMENTAL", "0")
        .with_env("CARGO_TERM_COLOR", "never");
    Comparison::of("cargo", prepare, &run)
        // Cargo's own records of when it did what; everything that it built is compared.
        .except(|path| {
            path.components().any(|part| part.as_os_str() == ".fingerprint")
                || path.ends_with(".rustc_info.json")
                || path.ends_with(".global-cache")
        })
        .masking(|line| line.starts_with("test result: ") || line.starts_with("all doctests ran in"))
        .succeed();
}

#[test]
fn a_c_project_is_built_by_make_in_parallel() {
    let (Some(make), Some(cc)) = (find("make"), find("cc")) else { return };
    let prepare = |work: &Path| {
        let mut main = String::from("#include <stdio.h>\n");
        let mut calls = String::new();
        for n in 0..60 {
            let unit = format!("#include <math.h>\ndouble f{n}(double x) {{ return sqrt(x) + {n}; }}\n");
            directories::write(work, &format!("unit{n}.c"), &unit);
            let _ = writeln!(main, "double f{n}(double);");
            let _ = write!(calls, " + f{n}(4)");
        }
        let _ = writeln!(main, "int main(void) {{ printf(\"%.0f\\n\", 0.0{calls}); return 0; }}");
        directories::write(work, "main.c", &main);
        directories::write(
            work,
            "Makefile",
            "OBJECTS := $(patsubst %.c,%.o,$(sort $(wildcard *.c)))\n\
             program: $(OBJECTS)\n\tcc -o $@ $^ -lm\n\
             %.o: %.c\n\t@cc -g -O1 -c -o $@ $<\n",
        );
    };
    let run = Run::shell("make -s -j4 && ./program").with_tool(&make).with_tool(&cc);
    Comparison::of("make", prepare, &run).succeed();
}

#[test]
fn a_node_script_runs() {
    let Some(node) = find("node") else { return };
    let run = Run::program(&node, &["script.js"]);
    Comparison::of("node", |work| directories::write(work, "script.js", include_str!("script.js")), &run)
        .succeed();
}

#[test]
fn a_tar_of_200_mb_is_packed_streamed_and_unpacked() {
    let Some(tar) = find("tar") else { return };
    let fixed = "--sort=name --mtime=@1000000000 --owner=0 --group=0 --numeric-owner";
    let script = format!(
        "set -e
        tar {fixed} -cf packed.tar data
        mkdir unpacked
        tar -xf packed.tar -C unpacked
        tar {fixed} -cf - -C unpacked data"
    );
    let run = Run::shell(&script).with_tool(&tar);
    Comparison::of("tar", |work| directories::write_noise(&work.join("data"), 400, 500_000), &run).succeed();
}

#[test]
fn a_shell_pipeline_ends_as_it_does_outside() {
    let script = "set -u
        seq 1 200000 | sort -rn | awk '{ s += $1 } END { print s }' | tee sum.txt
        yes | head -c 1000000 | cksum
        find . -name '*.txt' | xargs wc -c
        (echo to stderr >&2; exit 7) | cat; echo ${?}
        ls does-not-exist; exit 3";
    let run = Run::shell(script);
    Comparison::of("shell", |_| {}, &run).end_with(3);
}
