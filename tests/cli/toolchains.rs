//! Toolchains of a home: shown where a profile names them, without anything else of the home.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::cli::fixture::{Place, code, shown, stderr, stdout};

/// A home of its own with something that no command may see.
fn home(place: &Place) -> PathBuf {
    let home = place.path().canonicalize().expect("it is there").join("home");
    fs::create_dir_all(home.join(".cargo/bin")).expect("directories can be made");
    fs::write(home.join(".cargo/credentials.toml"), "token = \"hidden\"\n").expect("a file can be written");
    home
}

/// A program of that text.
fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("it has one")).expect("directories can be made");
    fs::write(path, text).expect("a file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("our own file");
}

/// Runs a command for a caller with this home, under a profile that names these toolchains.
fn run(place: &Place, home: &Path, toolchains: &str, options: &[&str], words: &[&str]) -> Output {
    let profile = format!("[profile.tools]\nextends = \"workspace\"\ntoolchains = [{toolchains}]\n");
    fs::write(place.policies().join("tools.toml"), profile).expect("a file can be written");
    let options = [&["--profile", "tools"], options].concat();
    place.run(&options, words).env("HOME", home).output().expect("provost starts")
}

/// The home of the user that runs the tests, if it has this.
fn own(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("HOME")?).join(name);
    path.exists().then_some(path)
}

#[test]
fn rustup_and_cargo_of_a_home_build_and_the_credentials_next_to_them_are_hidden() {
    let (Some(rustup), Some(toolchains)) = (own(".cargo/bin/rustup"), own(".rustup")) else {
        println!("SKIPPED: this user has no rustup");
        return;
    };
    let place = Place::new();
    let home = home(&place);
    fs::copy(rustup, home.join(".cargo/bin/rustup")).expect("it can be copied");
    for name in ["cargo", "rustc"] {
        symlink("rustup", home.join(".cargo/bin").join(name)).expect("a link can be made");
    }
    symlink(toolchains, home.join(".rustup")).expect("a link can be made");
    let secret = home.join(".cargo/credentials.toml");
    let script = format!(
        "cargo init -q --vcs none --name hello . && cargo run -q --offline; cat {}; touch {}/.cargo/bin/new",
        secret.display(),
        home.display()
    );
    let done = run(&place, &home, "\"rust\"", &[], &["sh", "-c", &script]);
    assert_eq!(stdout(&done), "Hello, world!\n", "{}", shown(&done));
    assert!(!home.join(".cargo/bin/new").exists(), "{}", shown(&done));
    let without = run(&place, &home, "", &[], &["cargo", "--version"]);
    assert_ne!(code(&without), 0, "the profile does not name it: {}", shown(&without));
    let shipped =
        place.run(&[], &["cargo", "--version"]).env("HOME", &home).output().expect("provost starts");
    assert_eq!(code(&shipped), 0, "the shipped profile names it: {}", shown(&shipped));
}

#[test]
fn the_version_of_node_that_nvm_has_chosen_comes_first() {
    let node = Path::new("/usr/bin/node");
    if !node.exists() {
        println!("SKIPPED: there is no /usr/bin/node");
        return;
    }
    let place = Place::new();
    let home = home(&place);
    for version in ["v9.2.0", "v22.9.0", "v22.10.1", "v23.0.0"] {
        let bin = home.join(".nvm/versions/node").join(version).join("bin");
        fs::create_dir_all(&bin).expect("directories can be made");
        fs::copy(node, bin.join("node")).expect("it can be copied");
    }
    fs::create_dir_all(home.join(".nvm/alias")).expect("a directory can be made");
    let print = ["node", "-p", "process.execPath"];
    for (chosen, expected) in [("22\n", "v22.10.1"), ("v9.2.0", "v9.2.0"), ("lts/*", "v23.0.0"), ("77", "")] {
        fs::write(home.join(".nvm/alias/default"), chosen).expect("a file can be written");
        let done = run(&place, &home, "\"node\"", &[], &print);
        let path = home.join(".nvm/versions/node").join(expected).join("bin/node");
        let expected = if expected.is_empty() { node } else { &path };
        assert_eq!(stdout(&done).trim(), expected.to_str().expect("text"), "{chosen}: {}", shown(&done));
    }
}

/// With layouts as these tools make them: their programs come from where no registry of packages is.
#[test]
fn the_versions_that_asdf_mise_and_sdkman_have_chosen_come_first() {
    let place = Place::new();
    let home = home(&place);
    let make = |path: &str| program(&home.join(path).join("mytool"), &format!("#!/bin/sh\necho {path}\n"));
    let (asdf, mise) = (".asdf/installs/mytool", ".local/share/mise/installs/mytool");
    for version in ["9.1.0", "22.9.0", "22.10.1", "23.0.0"] {
        make(&format!("{asdf}/{version}/bin"));
        make(&format!("{mise}/{version}/bin"));
    }
    symlink("./23.0.0", home.join(mise).join("latest")).expect("a link can be made");
    let java = ".sdkman/candidates/java";
    make(&format!("{java}/21.0.2-tem/bin"));
    symlink(home.join(java).join("21.0.2-tem"), home.join(java).join("current")).expect("a link can be made");
    let settings = home.join(".config/mise/config.toml");
    fs::create_dir_all(settings.parent().expect("it has one")).expect("a directory can be made");
    let runs = |toolchains: &str| {
        let done = run(&place, &home, toolchains, &[], &["mytool"]);
        stdout(&done).trim().to_owned()
    };
    assert_eq!(runs("\"asdf\""), format!("{asdf}/23.0.0/bin"), "the newest");
    assert_eq!(runs("\"java\""), format!("{java}/21.0.2-tem/bin"));
    fs::write(home.join(".tool-versions"), "other 1\nmytool 22\n").expect("a file can be written");
    assert_eq!(runs("\"asdf\""), format!("{asdf}/22.10.1/bin"));
    fs::write(&settings, "[tools]\nmytool = \"9.1.0\"\n[env]\nSECRET = \"hidden\"\n")
        .expect("a file can be written");
    assert_eq!(runs("\"mise\""), format!("{mise}/9.1.0/bin"));
    fs::remove_file(&settings).expect("it is there");
    assert_eq!(runs("\"mise\""), format!("{mise}/22.10.1/bin"));
    // The settings of these tools hold variables, and what is next to the versions is nobody's business.
    fs::write(&settings, "secret").expect("a file can be written");
    let hidden = run(&place, &home, "\"mise\"", &[], &["cat", settings.to_str().expect("text")]);
    assert!(code(&hidden) != 0 && stdout(&hidden).is_empty(), "{}", shown(&hidden));
}

#[test]
fn pyenvs_python_runs_and_makes_virtual_environments() {
    let Some(pyenv) = own(".pyenv") else {
        println!("SKIPPED: this user has no pyenv");
        return;
    };
    let place = Place::new();
    let home = home(&place);
    symlink(&pyenv, home.join(".pyenv")).expect("a link can be made");
    let script = "python3 -c 'import sys; print(sys.prefix)'; python3 -m venv --without-pip env && \
                  env/bin/python -c 'print(6 * 7)'";
    let outside =
        Command::new(pyenv.join("shims/python3")).args(["-c", "import sys; print(sys.prefix)"]).output();
    let done = run(&place, &home, "\"python\"", &[], &["sh", "-c", script]);
    assert_eq!(stdout(&done), stdout(&outside.expect("it starts")) + "42\n", "{}", shown(&done));
}

#[test]
fn a_toolchain_is_no_way_to_what_is_hidden_or_changeable() {
    let place = Place::new();
    let home = home(&place);
    let path = |options: &[&str]| {
        let done =
            run(&place, &home, "\"python\", \"node\", \"go\"", options, &["sh", "-c", "echo $PATH; ls -a /"]);
        assert_eq!(code(&done), 0, "{}", shown(&done));
        assert!(!stdout(&done).contains(&*home.join("").to_string_lossy()), "{}", shown(&done));
    };
    // The whole home under the name of a toolchain.
    symlink(".", home.join(".pyenv")).expect("a link can be made");
    path(&[]);
    // A directory in which any user can put programs.
    fs::remove_file(home.join(".pyenv")).expect("our own link");
    program(&home.join("go/bin/git"), "#!/bin/sh\necho planted\n");
    fs::set_permissions(home.join("go/bin"), fs::Permissions::from_mode(0o777)).expect("our own directory");
    path(&[]);
    // A directory in which the session's own commands can.
    fs::set_permissions(home.join("go/bin"), fs::Permissions::from_mode(0o755)).expect("our own directory");
    let go = home.join("go");
    let done = run(&place, &home, "\"go\"", &[], &["git", "--version"]);
    assert_eq!(stdout(&done), "planted\n", "else it comes first, as in the caller's shell: {}", shown(&done));
    let done = run(&place, &home, "\"go\"", &["--root", go.to_str().expect("text")], &["git", "--version"]);
    assert!(stdout(&done).starts_with("git version"), "{}", shown(&done));
}

#[test]
fn a_program_that_is_not_shown_is_named_with_its_place_and_the_line_that_would_show_it() {
    let place = Place::new();
    let home = home(&place);
    program(&home.join(".cargo/bin/some-tool"), "#!/bin/sh\n");
    program(&home.join("bin/other-tool"), "#!/bin/sh\n");
    let search = format!("{0}/.cargo/bin:{0}/bin:/usr/bin:/bin", home.display());
    let said = |words: &[&str]| {
        let profile = "[profile.tools]\nextends = \"workspace\"\ntoolchains = []\n";
        fs::write(place.policies().join("tools.toml"), profile).expect("a file can be written");
        let mut run = place.run(&["--profile", "tools"], words);
        let done = run.env("HOME", &home).env("PATH", &search).output().expect("provost starts");
        assert_eq!(code(&done), 127, "{}", shown(&done));
        stderr(&done)
    };
    let text = said(&["some-tool"]);
    let place_of_it = home.join(".cargo/bin/some-tool");
    assert!(
        text.contains(place_of_it.to_str().expect("text")) && text.contains("toolchains = [\"rust\"]"),
        "{text}"
    );
    let other = home.join("bin/other-tool");
    for name in ["other-tool", other.to_str().expect("text")] {
        let text = said(&[name]);
        assert!(text.contains("read_only") && text.contains(other.to_str().expect("text")), "{text}");
    }
    let text = said(&["no-such-tool-anywhere"]);
    assert!(!text.contains("on this host, which"), "{text}");
}

#[test]
fn a_toolchain_that_nobody_knows_is_refused_when_the_policy_is_loaded() {
    let place = Place::new();
    let done = run(&place, &home(&place), "\"cobol\"", &[], &["true"]);
    assert_eq!(code(&done), 125, "{}", shown(&done));
    assert!(stderr(&done).contains("\"cobol\" is no toolchain"), "{}", shown(&done));
}

#[test]
fn a_link_that_a_command_leaves_in_place_of_a_toolchain_shows_nothing() {
    let place = Place::new();
    let home = home(&place);
    fs::create_dir_all(home.join(".ssh")).expect("directories can be made");
    fs::write(home.join(".ssh/key"), "hidden\n").expect("a file can be written");
    fs::create_dir_all(home.join("elsewhere/.rustup")).expect("directories can be made");
    fs::write(home.join("elsewhere/.rustup/file"), "moved\n").expect("a file can be written");
    symlink("elsewhere/.rustup", home.join(".rustup")).expect("a link can be made");
    program(&home.join(".cargo/bin/cargo"), "#!/bin/sh\n");
    for (root, link) in [("go", "bin"), ("sdk", "go1.99"), (".nvm/versions", "node"), (".local/bin", "uv")] {
        let root = home.join(root);
        fs::create_dir_all(&root).expect("directories can be made");
        let target = if link == "uv" { home.join(".ssh/key") } else { home.join(".ssh") };
        let script = format!("ln -s {} {link}", target.display());
        let mut make = place.run(&["--root", root.to_str().expect("text")], &["sh", "-c", &script]);
        let made = make.env("HOME", &home).output().expect("provost starts");
        assert_eq!(code(&made), 0, "{}", shown(&made));
        let path = if link == "uv" { root.join(link) } else { root.join(link).join("key") };
        assert_eq!(fs::read_to_string(&path).expect("outside it leads there"), "hidden\n");
        let read = format!(
            "cat {} {}; cat {}/.rustup/file",
            path.display(),
            target.display(),
            home.join("elsewhere").display()
        );
        let named = run(&place, &home, "\"go\", \"node\", \"python\", \"rust\"", &[], &["sh", "-c", &read]);
        let shipped =
            place.run(&[], &["sh", "-c", &read]).env("HOME", &home).output().expect("provost starts");
        for done in [named, shipped] {
            assert_eq!(stdout(&done), "moved\n", "only what is a toolchain by its name: {}", shown(&done));
        }
    }
}
