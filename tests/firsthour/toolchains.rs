//! Toolchains in a home, as their installers lay them out: copied from this machine, or from the registries.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::firsthour::{person::Person, walk::shown};

/// rustup with one toolchain. False, and said, where the user of the tests has none.
pub(crate) fn rustup(person: &Person) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let own = home.join(".cargo/bin/rustup");
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok();
    let sysroot = sysroot.map(|done| PathBuf::from(String::from_utf8_lossy(&done.stdout).trim()));
    let Some(sysroot) = sysroot.filter(|sysroot| own.exists() && sysroot.join("bin/cargo").exists()) else {
        return missing("rustup");
    };
    let bin = person.home().join(".cargo/bin");
    person.make(&bin);
    fs::copy(own, bin.join("rustup")).expect("it can be copied");
    for name in ["cargo", "rustc", "rustdoc"] {
        symlink("rustup", bin.join(name)).expect("a link can be made");
    }
    // With the name that rustup has for it. What is linked costs no room; another file system needs copies.
    let name = sysroot.file_name().expect("a directory").to_string_lossy().into_owned();
    let toolchain = person.home().join(".rustup/toolchains").join(&name);
    person.make(&toolchain);
    for part in ["bin", "lib", "libexec"].iter().filter(|part| sysroot.join(part).exists()) {
        let (from, to) = (sysroot.join(part), toolchain.join(part));
        if !copy(&["-al"], &from, &to) {
            assert!(copy(&["-a"], &from, &to), "a toolchain can be copied");
        }
    }
    let settings =
        format!("version = \"12\"\ndefault_toolchain = \"{name}\"\nprofile = \"minimal\"\n\n[overrides]\n");
    fs::write(person.home().join(".rustup/settings.toml"), settings).expect("a file can be written");
    true
}

fn copy(options: &[&str], from: &Path, to: &Path) -> bool {
    let _ = fs::remove_dir_all(to);
    Command::new("cp").args(options).arg(from).arg(to).output().is_ok_and(|done| done.status.success())
}

/// node as nvm lays it out, with npm from its registry.
pub(crate) fn nvm(person: &Person) -> bool {
    // What this machine sets for its npm (its certificates, say) lies at the prefix, of which this is another.
    let script = "node=$(command -v node) && version=$(node --version) && mkdir -p .nvm/alias && \
                  prefix=$PWD/.nvm/versions/node/$version && mkdir -p \"$prefix/etc\" && \
                  config=$(npm config get globalconfig) && \
                  { [ ! -e \"$config\" ] || cp \"$config\" \"$prefix/etc/npmrc\"; } && \
                  npm install --loglevel=error --global --prefix \"$prefix\" npm@10 && \
                  cp \"$node\" \"$prefix/bin/node\" && echo \"$version\" > .nvm/alias/default";
    installed(person, "npm", script)
}

/// uv from PyPI, where its installer puts it.
pub(crate) fn uv(person: &Person) -> bool {
    let script = "python3 -m venv .uv-from && .uv-from/bin/pip install -q uv && mkdir -p .local/bin && \
                  cp .uv-from/bin/uv .local/bin/uv";
    installed(person, "pip", script)
}

/// mise from npm, where its installer puts it, and a program that it has installed.
pub(crate) fn mise(person: &Person) -> bool {
    // What this machine sets for its npm (its certificates, say) lies at the prefix, and here are others.
    let script = "export npm_config_globalconfig=$(npm config get globalconfig) && \
                  npm install --loglevel=error --prefix .mise-from @jdxcode/mise-linux-x64@2026.9.15 && \
                  mkdir -p .local/bin && \
                  cp .mise-from/node_modules/@jdxcode/mise-linux-x64/bin/mise .local/bin/mise && \
                  MISE_NPM_PACKAGE_MANAGER=npm .local/bin/mise use -g npm:cowsay@1.6.0";
    installed(person, "npm", script)
}

fn installed(person: &Person, tool: &str, script: &str) -> bool {
    let done = person.outside(script, &person.home());
    if !done.status.success() {
        println!("{}", shown(&done));
        return missing(tool);
    }
    true
}

fn missing(tool: &str) -> bool {
    println!("SKIPPED: this machine has no {tool}, or its registry does not answer");
    assert!(std::env::var("CI").is_err(), "CI must have {tool} and its registry");
    false
}
