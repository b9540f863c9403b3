//! What the journal never says: values of variables, input, output, secrets.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::{
    journaled::{directory, must_be_intact},
    support::{EndOfInput, Gateway, Options, Session},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_value_no_input_no_output_and_no_secret_is_ever_in_the_journal() {
    let root = tempfile::tempdir().expect("a directory");
    let secret = root.path().join("token");
    fs::write(&secret, "s3cr3t-of-the-house\n").expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let more = format!("[journal]\ndirectory = {:?}\n", root.path().join("journal").display().to_string());
    let gateway = Gateway::start_with(Options { config: Some(more), ..Options::default() });
    let policy = gateway.directory().join("policies/default.toml");
    let text = fs::read_to_string(&policy).expect("the policy is there");
    let text = text.replacen("[profile.workspace]\n", "[profile.workspace]\nsecrets = ['TOKEN']\n", 1);
    let grant = format!("[secrets.TOKEN]\nfile = {:?}\n", secret.display().to_string());
    fs::write(&policy, format!("{text}\n{grant}")).expect("it can be written");
    gateway.signal(nix::sys::signal::Signal::SIGHUP);
    let journal = root.path().join("journal");
    crate::journaled::record(&journal, "the new policy", |record| {
        record["kind"] == "policy_loaded" && record["generation"] == 2
    })
    .await;
    let session = Session::open(&gateway).await;
    let script = "read line; echo the-output-$line; echo s3cr3t-of-the-house; echo $TOKEN";
    let terminal = session.sh(script).env("HARMLESS", "value-of-a-variable").stdin().create().await;
    terminal.write(b"what-was-typed\n", EndOfInput::After).await.expect("it runs");
    terminal.wait().await;
    session.command("true").env("LD_PRELOAD", "value-that-was-refused").refusal().await;
    session.close().await;
    gateway.stop();
    must_be_intact(&journal);
    let written =
        fs::read_to_string(journal.join("journal-00000000000000000001.jsonl")).expect("it is there");
    assert!(written.contains("the-output-$line; echo ***; echo $TOKEN"), "the command is there, masked");
    for never in [
        "s3cr3t",
        "value-of-a-variable",
        "value-that-was-refused",
        "what-was-typed",
        "the-output-what",
        "the gateway's own secret",
    ] {
        assert!(!written.contains(never), "{never:?} is in the journal");
    }
    assert!(!directory(&gateway).exists(), "the journal is where the configuration says, and nowhere else");
}
