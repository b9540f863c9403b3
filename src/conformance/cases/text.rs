//! Text: what commands write is bytes, what the protocol carries is text.

use serde_json::json;

use crate::{
    case::cases,
    context::{TestContext, shortened},
    fault::{Fault, ensure},
};

cases! {
    60 Must Agent "v1 schema: outputByteLimit: truncation happens at a character boundary":
        "a limit in the middle of a character cuts before the next one, and leaves no replacement" => cut_at_characters;
    61 Must Agent "v1 schema: outputByteLimit: even if the retained output is slightly less":
        "a limit that is smaller than the only character keeps nothing" => smaller_than_a_character;
    62 Must Agent "practice: a reader of bytes sees characters in pieces":
        "a character that is written in two pieces is whole in the end" => written_in_pieces;
    63 Should Agent "practice: agents compare what they have seen":
        "the first piece of a character is not shown as something else" => half_a_character;
    64 Must Agent "RFC 8259: JSON is UTF-8":
        "bytes that are no UTF-8 are replaced, and what stands around them stays" => no_utf_8;
    65 Must Agent "RFC 8259: control characters are escaped":
        "control characters arrive" => control_characters;
    66 Must Agent "RFC 8259, and one message a line":
        "characters that some take for line ends do not break the line" => other_line_ends;
    67 Must Agent "RFC 8259":
        "four-byte characters, combined ones and private ones arrive" => all_planes;
    68 Must Agent "v1 schema: TerminalOutputResponse.output is a string":
        "a hundred thousand random bytes are answered with text" => random_bytes;
    69 Should Agent "practice: output is shown, and measured, in colours":
        "escape sequences arrive as they were written" => escape_sequences;
}

const CRAB: &str = "🦀";

async fn cut_at_characters(stage: TestContext) -> Result<(), Fault> {
    // 4000 bytes of four-byte characters.
    let script = format!("i=0; while [ $i -lt 1000 ]; do printf '{CRAB}'; i=$((i+1)); done");
    for limit in [5, 6, 7, 8, 9, 101, 1022, 3999] {
        let params = json!({"command": "sh", "args": ["-c", script], "outputByteLimit": limit});
        let id = stage.create(params).await?;
        stage.wait(&id).await?;
        let seen = stage.output(&id).await?;
        ensure!(seen.text.len() <= limit, "limit {limit}: {} bytes are kept", seen.text.len());
        ensure!(seen.text == CRAB.repeat(limit / 4), "limit {limit}: kept is {:?}", shortened(&seen.text));
        ensure!(seen.truncated, "limit {limit}: truncated is not true");
    }
    Ok(())
}

async fn smaller_than_a_character(stage: TestContext) -> Result<(), Fault> {
    for limit in [1, 2, 3] {
        let params = json!({"command": "/usr/bin/printf", "args": [CRAB], "outputByteLimit": limit});
        let id = stage.create(params).await?;
        stage.wait(&id).await?;
        let seen = stage.output(&id).await?;
        ensure!(seen.text.is_empty() && seen.truncated, "limit {limit}: {seen:?}");
    }
    Ok(())
}

async fn written_in_pieces(stage: TestContext) -> Result<(), Fault> {
    let script = r"printf '\360'; sleep 0.1; printf '\237\246'; sleep 0.1; printf '\200'; printf '\303'; sleep 0.1; printf '\274.'";
    let id = stage.script(script).await?;
    // Asked for in between, so that a reader that decodes piece by piece shows itself.
    loop {
        let seen = stage.output(&id).await?;
        if seen.exit.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let seen = stage.output(&id).await?.text;
    ensure!(seen == "🦀ü.", "the output is {seen:?}");
    Ok(())
}

async fn half_a_character(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script(r"printf 'begun\303'; exec sleep 60").await?;
    let seen = stage.until(&id, "begun").await?.text;
    ensure!(seen == "begun", "the output is {seen:?}");
    Ok(())
}

async fn no_utf_8(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of(r"printf 'a\377b\300\200c\355\240\200d\n'").await?;
    ensure!(seen.starts_with('a') && seen.ends_with("d\n"), "the output is {seen:?}");
    let letters: String = seen.chars().filter(char::is_ascii_lowercase).collect();
    ensure!(letters == "abcd" && seen.contains('\u{fffd}'), "the output is {seen:?}");
    Ok(())
}

async fn control_characters(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of(r#"printf '\000\001\007\010\011\013\014\033\037\177"\\'"#).await?;
    ensure!(seen == "\0\u{1}\u{7}\u{8}\t\u{b}\u{c}\u{1b}\u{1f}\u{7f}\"\\", "the output is {seen:?}");
    Ok(())
}

async fn other_line_ends(stage: TestContext) -> Result<(), Fault> {
    let text = "a\u{2028}b\u{2029}c\u{85}d";
    let id = stage.create(json!({"command": "/usr/bin/printf", "args": ["%s", text]})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen == text, "the output is {seen:?}");
    Ok(())
}

async fn all_planes(stage: TestContext) -> Result<(), Fault> {
    let text = "é e\u{301} 👩\u{200d}🔬 \u{fffd} \u{e000} \u{10ffff} \u{feff}x ٣ 漢字";
    let id = stage.create(json!({"command": "/usr/bin/printf", "args": ["%s", text]})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen == text, "the output is {seen:?}");
    Ok(())
}

async fn random_bytes(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("head -c 100000 /dev/urandom; printf 'the end'").await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(
        seen.ends_with("the end"),
        "the output ends with {:?}",
        seen.chars().rev().take(20).collect::<String>()
    );
    Ok(())
}

async fn escape_sequences(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of(r"printf '\033[1;31mred\033[0m\033]0;title\007'").await?;
    ensure!(seen == "\u{1b}[1;31mred\u{1b}[0m\u{1b}]0;title\u{7}", "the output is {seen:?}");
    Ok(())
}
