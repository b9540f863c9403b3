//! What is a session's and not a sandbox's: `/tmp`, the home and the commands' id, for commands of all its profiles and networks.

use std::{path::Path, sync::Arc};

use crate::support::{Finished, Gateway, Options, Session, Terminal, api::Network, code, is_root, skip};

/// A user that nobody is.
const USER: u32 = 54_371;

/// Leaves a file in each place, and says who it is.
const LEAVES: &str = "umask 077; for at in /tmp \"$HOME\"; do echo left > $at/file; mkdir $at/directory; \
                      echo deep > $at/directory/file; done; id -u";
/// Reads them, writes to them, and says who it is.
const FINDS: &str = "cat /tmp/file ~/file /tmp/directory/file ~/directory/file; echo more >> /tmp/more; \
                     touch ~/directory/other; id -u";

fn add_profile(policy: &mut toml::Table, name: &str, text: &str) {
    let profiles = policy["profile"].as_table_mut().expect("a table");
    profiles.insert(name.into(), toml::Value::Table(toml::from_str(text).expect("TOML")));
}

fn isolated(policy: &mut toml::Table) {
    let profile = "extends = 'workspace'\nisolation = 'terminal'\n";
    add_profile(policy, "alone", profile);
}

/// An ordinary user has no cgroup to make limits in.
fn of_a_user(policy: &mut toml::Table) {
    isolated(policy);
    for profile in ["workspace", "offline"] {
        policy["profile"][profile]["limits"]["requirement"] = "prefer".into();
    }
}

async fn under(session: &Session, profile: &str, network: Network, script: &str) -> Finished {
    let command = session.sh(script).with(|request| {
        request.profile = profile.into();
        request.network = network as i32;
    });
    command.finish().await
}

/// The host's ids of a command that runs: as the host sees them, and as its receipt says.
async fn host_ids(session: &Session, profile: &str) -> (Terminal, u32) {
    let terminal = session.sh("echo ready; exec sleep 1000").with(|request| request.profile = profile.into());
    let terminal = terminal.create().await;
    terminal.until("ready").await;
    let id = terminal.info.receipt.as_ref().expect("a receipt").host_uid;
    (terminal, id)
}

async fn must_be_the_sessions(session: &Session, other: &Session) {
    let left = under(session, "workspace", Network::Unspecified, LEAVES).await;
    assert_eq!(code(&left.outcome), 0, "{}", left.text());
    let (own_id, expected) = (left.text(), format!("left\nleft\ndeep\ndeep\n{}", left.text()));
    for (profile, network) in [("offline", Network::Unspecified), ("workspace", Network::Proxy)] {
        let found = under(session, profile, network, FINDS).await;
        assert_eq!((code(&found.outcome), found.text()), (0, expected.clone()), "{profile} {network:?}");
    }
    // What another profile wrote is there for the first one again.
    let again =
        under(session, "workspace", Network::Unspecified, "cat /tmp/file /tmp/more; ls ~/directory").await;
    assert_eq!(again.text(), "left\nmore\nmore\nfile\nother\n");
    let named =
        under(session, "offline", Network::Unspecified, "git config --global user.name X && id -u").await;
    assert_eq!(named.text(), own_id);
    let name = under(session, "workspace", Network::Unspecified, "git config user.name").await;
    assert_eq!(name.text(), "X\n", "git's configuration is the session's");
    for (whose, profile, session) in
        [("a sandbox of its own", "alone", session), ("another session", "workspace", other)]
    {
        let none = under(
            session,
            profile,
            Network::Unspecified,
            "ls -A /tmp | grep -v provost-test; ls -A ~; id -u",
        )
        .await;
        assert_eq!(none.text(), format!(".gitconfig\n{own_id}"), "{whose}");
    }
    let ((one, first), (two, second)) =
        (host_ids(session, "workspace").await, host_ids(session, "offline").await);
    assert_eq!(first, second, "one id on the host");
    let (three, third) = host_ids(session, "alone").await;
    assert_eq!(first == third, !is_root_gateway(session), "{first} {third}");
    for terminal in [one, two, three] {
        terminal.release().await;
    }
}

fn is_root_gateway(session: &Session) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = Path::new("/proc").join(session.gateway.pid.to_string()).metadata().expect("it runs").uid();
    owner == 0
}

async fn must_hold_for(gateway: &Arc<Gateway>, user: Option<u32>) {
    let open = async || match user {
        Some(user) => Session::open_as(gateway, user).await,
        None => Session::open(gateway).await,
    };
    let (session, other) = (open().await, open().await);
    must_be_the_sessions(&session, &other).await;
    session.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tmp_home_and_id_are_the_sessions_in_all_its_profiles() {
    let gateway = Gateway::with_policy(isolated);
    must_hold_for(&gateway, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tmp_home_and_id_are_the_sessions_for_a_user_with_cgroups() {
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    let options =
        Options { user: Some(USER), delegated: true, policy: Some(of_a_user), ..Options::default() };
    must_hold_for(&Gateway::start_with(options), Some(USER)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tmp_home_and_id_are_the_sessions_for_a_user_whose_terminals_have_sandboxes_of_their_own() {
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    let options = Options { user: Some(USER), policy: Some(of_a_user), ..Options::default() };
    must_hold_for(&Gateway::start_with(options), Some(USER)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_session_holds_outlives_the_sandbox_that_made_it() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    under(&session, "workspace", Network::Unspecified, "echo kept > /tmp/file").await;
    let seen = under(&session, "offline", Network::Unspecified, "cat /tmp/file").await;
    assert_eq!(seen.text(), "kept\n");
    let marker = session.marker();
    let terminal = session.idle(&marker).create().await;
    terminal.until("ready").await;
    let command = crate::support::Process::all_marked(&marker).pop().expect("it runs");
    let supervisor = command.field("PPid").parse().expect("a number");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(supervisor), nix::sys::signal::SIGKILL)
        .expect("it is ours");
    terminal.wait().await;
    for profile in ["workspace", "offline"] {
        let seen = under(&session, profile, Network::Unspecified, "cat /tmp/file").await;
        assert_eq!((code(&seen.outcome), seen.text()), (0, "kept\n".into()), "{profile}");
    }
    session.close().await;
    gateway.stop();
}

/// Below `/tmp` and in the home lies what a sandbox mounts there: a command that runs meanwhile owns these directories.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn links_that_a_command_leaves_where_another_sandbox_mounts_lead_nowhere() {
    let gateway = Gateway::with_policy(|policy| {
        add_profile(policy, "nested", "extends = 'workspace'\n[identity]\nhome = '/tmp/nested/home'\n");
    });
    let session = Session::open(&gateway).await;
    // The other profile's home is to be mounted at /tmp/nested/home.
    let planted = "echo kept > /tmp/kept; mkdir -p /tmp/elsewhere && ln -s /tmp/elsewhere /tmp/nested";
    let done = under(&session, "workspace", Network::Unspecified, planted).await;
    assert_eq!(code(&done.outcome), 0, "{}", done.text());
    let refusal = session.sh("true").with(|request| request.profile = "nested".into()).refusal().await;
    assert_eq!((refusal.meta("stage"), refusal.meta("path")), ("mount", "/tmp/nested/home"), "{refusal:?}");
    under(&session, "workspace", Network::Unspecified, "rm /tmp/nested").await;
    if !mounts_can_be_attached_again() {
        // The refused launch has used up the session's /tmp: that is said once, and the next sandbox has a new one.
        let refusal = session.sh("true").with(|request| request.profile = "nested".into()).refusal().await;
        assert_eq!((refusal.meta("stage"), refusal.meta("path")), ("mount", "tmp"), "{refusal:?}");
    }
    // A launch that failed for another reason leaves the session what it has.
    let kept = if mounts_can_be_attached_again() { "kept\n" } else { "" };
    let finds = "cd && pwd; cat /tmp/kept 2>/dev/null";
    let done = under(&session, "nested", Network::Unspecified, finds).await;
    assert_eq!(done.text(), format!("/tmp/nested/home\n{kept}"));
    session.close().await;
    gateway.stop();
}

/// Before Linux 6.15 a detached mount can be attached once.
fn mounts_can_be_attached_again() -> bool {
    let release = nix::sys::utsname::uname().expect("the kernel has a name").release().to_os_string();
    let release = release.to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}
