//! Messages that cannot be read: each is answered, and the next one is read.

use serde_json::{Value, json};

use crate::{mcp::peer::Peer, support::Gateway};

#[test]
fn a_message_that_cannot_be_read_is_answered_and_the_next_one_is_read() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let long = "x".repeat(4_400_000);
    let params = json!({ "name": "run_command", "arguments": { "command": "wc -c", "stdin": long } });
    // Some clients write the id first, and some last.
    let first = format!(r#"{{"jsonrpc":"2.0","id":500,"method":"tools/call","params":{params}}}"#);
    let last = format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":501}}"#);
    for (line, id, code) in [
        (r#"{"jsonrpc":"2.0","id":502,"method":"ping""#, json!(502), -32_700),
        ("hello", Value::Null, -32_700),
        (first.as_str(), json!(500), -32_600),
        (last.as_str(), json!(501), -32_600),
        (r#"{"jsonrpc":"2.0","id":503,"method":"tools/call","params":{"name":5}}"#, json!(503), -32_602),
        (
            r#"{"jsonrpc":"2.0","id":504,"method":"tools/call","params":{"name":"run_command","arguments":[]}}"#,
            json!(504),
            -32_602,
        ),
        (r#"{"jsonrpc":"2.0","id":505,"method":"tools/call"}"#, json!(505), -32_602),
        (r#"{"jsonrpc":"2.0","id":506,"method":"no/such"}"#, json!(506), -32_601),
    ] {
        peer.send_line(line);
        let told = peer.receive();
        assert_eq!((&told["id"], &told["error"]["code"]), (&id, &json!(code)), "{line:.80}: {told}");
        assert_eq!(peer.ask("ping", json!({}))["result"], json!({}), "{line:.80}");
    }
    gateway.stop();
}
