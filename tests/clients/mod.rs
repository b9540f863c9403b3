//! The official gRPC libraries of four languages, unmodified, over the unix socket. Those of Python and Ruby are built on
//! gRPC core, which sends the socket's path as `:authority`.
//!
//! Each client makes the same six checks, and prints the name of each that has passed.

pub(crate) mod libraries;

use std::process::Command;

use crate::support::Gateway;
use libraries::{Library, Missing};

const CHECKS: [&str; 6] = ["unary", "stream", "details", "deadline", "cancellation", "reflection"];

#[test]
#[ignore = "long: installs from PyPI; .ci/run runs it"]
fn python_with_grpcio() {
    check(Library::prepare("python").and_then(|library| {
        let python = library.python()?;
        let proto = format!("-I{}", libraries::proto().display());
        let mut protoc = Command::new(&python);
        protoc.args(["-m", "grpc_tools.protoc", &proto, "--python_out=.", "--grpc_python_out=."]);
        library.run(protoc.args(libraries::api_files()))?;
        let mut client = Command::new(python);
        client.env("PYTHONPATH", &library.directory).arg(library.sources.join("client.py"));
        Ok(client)
    }));
}

#[test]
#[ignore = "long: installs from npm; .ci/run runs it"]
fn node_with_grpc_js() {
    check(Library::prepare("node").and_then(|library| {
        for name in ["package.json", "package-lock.json", "client.mjs"] {
            library.copy(name);
        }
        let mut npm = Command::new("npm");
        library.run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))?;
        let mut client = Command::new("node");
        client.arg(library.directory.join("client.mjs"));
        Ok(client)
    }));
}

#[test]
fn ruby_with_the_gem_grpc() {
    check(Library::prepare("ruby").and_then(|library| {
        library.run(Command::new("ruby").args(["-rgrpc", "-e", "0"]))?;
        let mut protoc = Command::new("protoc");
        protoc.arg(format!("-I{}", libraries::proto().display()));
        protoc.arg(format!("-I{}", libraries::clients().display()));
        protoc.args(["--ruby_out=.", "--grpc_out=."]);
        protoc.arg(format!("--plugin=protoc-gen-grpc={}", library.program("grpc_ruby_plugin")?.display()));
        library.run(protoc.args(libraries::api_files()).arg("reflection.proto"))?;
        let mut client = Command::new("ruby");
        client.arg("-I").arg(&library.directory).arg(library.sources.join("client.rb"));
        Ok(client)
    }));
}

#[test]
#[ignore = "long: .ci/run runs it"]
fn go_with_grpc_go() {
    check(Library::prepare("go").and_then(|library| {
        library.program("protoc-gen-go")?;
        // Debian's generator is older than `optional` in proto3, which is the same on the wire.
        library.copy_api(|text| text.replace("\n  optional ", "\n  "));
        let mut options = String::from("plugins=grpc,import_path=v1");
        for name in ["outcome", "sessions", "terminals"] {
            options += &format!(",Mprovost/v1/{name}.proto=provost/v1");
        }
        for name in ["duration", "timestamp"] {
            options += &format!(",Mgoogle/protobuf/{name}.proto=github.com/golang/protobuf/ptypes/{name}");
        }
        let mut protoc = Command::new("protoc");
        protoc.args(["-Iproto", &format!("--go_out={options}:src")]);
        library.run(
            protoc.args(["outcome", "sessions", "terminals"].map(|name| format!("provost/v1/{name}.proto"))),
        )?;
        let mut build = Command::new("go");
        build.env("GO111MODULE", "off").env("GOFLAGS", "").env("GOCACHE", library.directory.join("cache"));
        build.env("GOPATH", format!("{}:/usr/share/gocode", library.directory.display()));
        library.run(build.args(["build", "-o", "client"]).arg(library.sources.join("client.go")))?;
        Ok(Command::new(library.directory.join("client")))
    }));
}

/// Runs a client against a gateway of its own.
fn check(client: Result<Command, Missing>) {
    let mut client = match client {
        Ok(client) => client,
        Err(Missing(what)) => return crate::support::skip(&what),
    };
    let gateway = Gateway::start();
    let workspace = crate::support::new_workspace(&gateway, None);
    client.arg(format!("unix:{}", gateway.socket.display())).arg(&workspace);
    // For the one that reads them itself.
    client.arg(libraries::proto()).arg(libraries::clients().join("reflection.proto"));
    let (printed, status) = libraries::run_bounded(&mut client);
    assert!(status.success(), "{status}: {printed}");
    let passed: Vec<&str> = printed.lines().filter(|line| CHECKS.contains(line)).collect();
    assert_eq!(passed, CHECKS, "{printed}");
}
