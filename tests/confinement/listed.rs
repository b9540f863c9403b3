//! Every file of `policies/data/workspace-files.toml`: what is there stays as it is, and what is not there does not come, at
//! the root and, where the list says so, below it.

use std::{fs, path::Path, process::Command};

use crate::support::{Gateway, Session, in_session, within};

/// One entry of the list.
struct Listed {
    path: String,
    is_nested: bool,
}

fn data() -> toml::Table {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/data/workspace-files.toml");
    fs::read_to_string(file).expect("the list is there").parse().expect("it is TOML")
}

fn text<'a>(entry: &'a toml::Value, key: &str) -> &'a str {
    entry[key].as_str().expect("it is text")
}

fn listed() -> Vec<Listed> {
    let files = data()["file"].as_array().expect("a list").clone();
    let entry = |entry: &toml::Value| Listed {
        path: text(entry, "path").to_owned(),
        is_nested: entry.get("nested").is_none_or(|nested| nested.as_bool() == Some(true)),
    };
    files.iter().map(entry).collect()
}

/// Where the list protects: at the root, and below it.
fn places() -> Vec<String> {
    let below = |one: &Listed| one.is_nested.then(|| format!("below/{}", one.path));
    listed().iter().flat_map(|one| [Some(one.path.clone()), below(one)]).flatten().collect()
}

/// Writes a line into each file, with the directories above it; what is refused is left out.
fn planting(places: &[String]) -> String {
    let plant = |place: &String| {
        let directory = Path::new(place).parent().expect("it is relative").display().to_string();
        format!("mkdir -p './{directory}'; echo planted >> '{place}'\n")
    };
    format!("{{ {} }} 2>/dev/null; true", places.iter().map(plant).collect::<String>())
}

fn planted<'a>(directory: &Path, places: &'a [String]) -> Vec<&'a String> {
    let is_planted = |place: &&String| {
        fs::read_to_string(directory.join(place)).is_ok_and(|content| content.contains("planted"))
    };
    places.iter().filter(is_planted).collect()
}

fn outside(directory: &Path, script: &str) {
    let status = Command::new("sh").args(["-c", script]).current_dir(directory).status();
    assert!(status.is_ok_and(|status| status.success()), "a shell is there");
}

/// Waits until the whole workspace was looked at: on a busy machine a look lasts longer than a command waits for it, which its outcome
/// says (docs/internals/limits.md).
async fn looked_at(session: &Session) {
    let looks = async { while !session.sh("true").finish().await.outcome.workspace_shortfall.is_empty() {} };
    within("a look at the whole workspace", looks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_listed_file_comes_that_was_not_there() {
    let places = places();
    let script = planting(&places);
    let copy = tempfile::tempdir().expect("a directory");
    outside(copy.path(), &script);
    assert_eq!(planted(copy.path(), &places).len(), places.len(), "outside all of them can be made");
    in_session(&Gateway::shared(), async |session: &Session| {
        session.sh("mkdir below").finish().await;
        session.sh(&script).finish().await;
        assert_eq!(planted(&session.workspace, &places), Vec::<&String>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_listed_file_changes_that_was_there() {
    let places = places();
    let script = planting(&places);
    in_session(&Gateway::shared(), async |session: &Session| {
        outside(&session.workspace, &script.replace("planted", "before"));
        looked_at(session).await;
        session.sh(&script).finish().await;
        looked_at(session).await;
        assert_eq!(planted(&session.workspace, &places), Vec::<&String>::new());
        let remains = |place: &&String| {
            fs::read_to_string(session.workspace.join(place)).is_ok_and(|content| content == "before\n")
        };
        let changed: Vec<_> = places.iter().filter(|place| !remains(place)).collect();
        assert!(changed.is_empty(), "{changed:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_judged_file_stays_as_a_command_wrote_it_only_when_it_can_run_nothing() {
    let judged = data()["judged"].as_array().expect("a list").clone();
    in_session(&Gateway::shared(), async |session: &Session| {
        let mut wrong = Vec::new();
        // What is a directory to its tool is dangerous as a file, whatever it holds.
        for entry in judged.iter().filter(|entry| entry.get("only_file").is_none()) {
            let path = text(entry, "path");
            let dangerous = match entry.get("without") {
                Some(words) => format!("x {} y", words[0].as_str().expect("it is text")),
                None => "[hooks]\nupdate = ./x.sh".to_owned(),
            };
            let write = |content: &str| {
                format!("mkdir -p \"$(dirname {path})\"; printf '%s\\n' '{content}' > {path} && echo written")
            };
            let harmless = match (entry.get("without"), entry.get("keys")) {
                (Some(_), _) => "1",
                (None, Some(_)) => "---\nBUNDLE_PATH: \"vendor/bundle\"",
                (None, None) => "[paths]\ndefault = x",
            };
            for (content, stays) in [(harmless, true), (dangerous.as_str(), false)] {
                let done = session.sh(&write(content)).finish().await;
                // What is dangerous may be undone before the command has ended.
                assert_eq!(done.text(), "written\n", "{path}");
                let now = fs::read_to_string(session.workspace.join(path)).unwrap_or_default();
                if (now == format!("{content}\n")) != stays {
                    wrong.push(format!("{path} with {content:?}: {now:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    })
    .await;
}
