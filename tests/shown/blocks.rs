//! The blocks of the pages, and by which test each is held.

use std::{fs, path::Path};

/// The pages of the front ends.
pub(crate) const PAGES: [&str; 8] = [
    "README.md",
    "docs/agents.md",
    "docs/acp.md",
    "docs/clients.md",
    "docs/install.md",
    "docs/network.md",
    "sdk/python/README.md",
    "sdk/typescript/README.md",
];

/// By what a block or a command is held.
pub(crate) enum Held {
    /// A test: its file, and its name.
    By(&'static str, &'static str),
    /// A test of a part of it, and why the rest is not run.
    Partly(&'static str, &'static str, &'static str),
    /// Nothing, for this reason.
    Not(&'static str),
}
use Held::{By, Not, Partly};

/// Each block by its page and a text that it alone has there.
const BLOCKS: [(&str, &str, Held); 51] = [
    ("README.md", "supervisor (PID 1)", Not("a picture")),
    (
        "README.md",
        "cargo install",
        Not("it builds a release for minutes; docs/install.md has the other ways"),
    ),
    ("README.md", "--receipt", By("tests/shown/readme.rs", "the_first_command_runs")),
    ("README.md", "make test", By("tests/shown/readme.rs", "single_commands_run")),
    ("README.md", "provost serve", By("tests/shown/readme.rs", "a_services_terminals_are_managed")),
    ("README.md", "my-agent --acp", By("tests/shown/readme.rs", "each_front_end_for_agents_answers")),
    ("README.md", "provost mcp --root", By("tests/shown/readme.rs", "each_front_end_for_agents_answers")),
    (
        "docs/agents.md",
        "\"mcpServers\"",
        By(
            "tests/mcp/page.rs",
            "the_entry_that_the_page_shows_starts_a_server_that_runs_a_command_without_a_gateway",
        ),
    ),
    (
        "docs/agents.md",
        "provost mcp --http",
        By("tests/mcp/page.rs", "the_commands_that_the_page_shows_give_claude_code_its_servers"),
    ),
    (
        "docs/agents.md",
        "claude mcp add --transport http",
        By("tests/mcp/page.rs", "the_commands_that_the_page_shows_give_claude_code_its_servers"),
    ),
    (
        "docs/agents.md",
        "ln -sf",
        By("tests/mcp/page.rs", "the_shell_that_the_page_shows_confines_the_lines_of_an_agent"),
    ),
    (
        "docs/agents.md",
        "some-agent",
        By("tests/mcp/page.rs", "the_shell_that_the_page_shows_confines_the_lines_of_an_agent"),
    ),
    (
        "docs/agents.md",
        "program = \"/usr/bin/provost\"",
        By("tests/exec_server/pages.rs", "the_environment_of_the_page_runs_a_command_confined"),
    ),
    (
        "docs/agents.md",
        "approval_policy",
        By(
            "tests/exec_server/nightly/codex.rs",
            "the_commands_and_file_edits_of_codex_happen_in_the_sandbox",
        ),
    ),
    (
        "docs/agents.md",
        "provost exec-server --listen",
        By("tests/exec_server/pages.rs", "the_url_of_the_page_is_served_to_who_has_the_pages_environment"),
    ),
    (
        "docs/agents.md",
        "environments.toml <<END",
        By("tests/exec_server/pages.rs", "the_url_of_the_page_is_served_to_who_has_the_pages_environment"),
    ),
    ("docs/acp.md", "gateway: policy, sandbox, journal", Not("a picture")),
    ("docs/acp.md", "AGENT [ARG]...", Not("a form; README.md has the command")),
    ("docs/acp.md", "echo \"it works\"", By("tests/shown/acp.rs", "the_first_checks_pass")),
    (
        "docs/acp.md",
        "\"type\": \"custom\"",
        By("tests/shown/acp.rs", "an_editors_settings_start_the_agent_behind_provost"),
    ),
    (
        "docs/acp.md",
        "\"command\": \"/usr/local/bin/provost\"",
        By("tests/shown/acp.rs", "an_editors_settings_start_the_agent_behind_provost"),
    ),
    (
        "docs/acp.md",
        "\"acp.agents\"",
        By("tests/shown/acp.rs", "an_editors_settings_start_the_agent_behind_provost"),
    ),
    (
        "docs/acp.md",
        "require(\"codecompanion\")",
        By("tests/shown/acp.rs", "an_editors_settings_start_the_agent_behind_provost"),
    ),
    (
        "docs/acp.md",
        "require(\"avante\")",
        By("tests/shown/acp.rs", "an_editors_settings_start_the_agent_behind_provost"),
    ),
    (
        "docs/acp.md",
        "agent-shell-anthropic",
        By("tests/shown/acp.rs", "an_editors_settings_start_the_agent_behind_provost"),
    ),
    (
        "docs/acp.md",
        "npx stdio-to-ws",
        Not("it fetches two programs from a registry; what it starts is `provost acp`"),
    ),
    (
        "docs/acp.md",
        "[profile.mine]",
        By("tests/shown/acp.rs", "a_confined_agent_starts_with_the_policy_of_the_page"),
    ),
    (
        "docs/acp.md",
        "--confine-agent --network proxy",
        By("tests/shown/acp.rs", "a_confined_agent_starts_with_the_policy_of_the_page"),
    ),
    (
        "docs/acp.md",
        "id = \"model\"",
        By("tests/shown/acp.rs", "a_confined_agent_starts_with_the_policy_of_the_page"),
    ),
    ("docs/acp.md", "--list", By("tests/shown/acp.rs", "a_proxy_is_checked_by_the_suite")),
    (
        "docs/install.md",
        "cargo install",
        Not("it builds a release for minutes; `tests/shown/install.rs` has what follows it"),
    ),
    (
        "docs/install.md",
        "deploy/package deb",
        Partly(
            "tests/cli/packages.rs",
            "a_debian_package_has_the_same_and_keeps_what_a_person_configured",
            "a release is built for minutes, and the package unpacked below a directory",
        ),
    ),
    ("docs/install.md", "systemctl enable", Not("`.ci/systemd` starts the units in a machine of its own")),
    (
        "docs/install.md",
        "sudo tar -C /",
        Partly(
            "tests/cli/packages.rs",
            "an_archive_has_the_program_and_all_that_belongs_to_it",
            "it is unpacked below a directory",
        ),
    ),
    (
        "docs/install.md",
        "rustup target add",
        Not("`.ci/long static` builds this program and runs a command by it"),
    ),
    (
        "docs/network.md",
        "npm ci",
        By("tests/shown/network.rs", "the_commands_run_and_the_rules_are_explained"),
    ),
    (
        "docs/network.md",
        "id = \"registries\"",
        By("tests/shown/network.rs", "the_policies_are_what_the_page_says"),
    ),
    (
        "docs/network.md",
        "[profile.build.network]",
        By("tests/shown/network.rs", "the_policies_are_what_the_page_says"),
    ),
    (
        "docs/network.md",
        "[secrets.FORGE_TOKEN]",
        By("tests/shown/network.rs", "the_policies_are_what_the_page_says"),
    ),
    (
        "docs/network.md",
        "provost: denied: connection",
        By("tests/shown/network.rs", "a_command_is_told_what_the_page_shows"),
    ),
    (
        "docs/network.md",
        "provost: not reached",
        By("tests/shown/network.rs", "a_command_is_told_what_the_page_shows"),
    ),
    (
        "docs/network.md",
        "preview.sock",
        By("tests/shown/network.rs", "a_port_is_forwarded_to_the_loopback_and_to_a_socket"),
    ),
    (
        "sdk/python/README.md",
        "pip install",
        Not("nothing is published yet; `.ci/sdk python` installs the package"),
    ),
    ("sdk/python/README.md", "open_session", By("sdk/python/tests/test_readme.py", "test_first_command")),
    ("sdk/python/README.md", "open_shell", By("sdk/python/tests/test_readme.py", "test_kept_shell")),
    (
        "sdk/typescript/README.md",
        "npm install",
        Not("nothing is published yet; `.ci/sdk typescript` installs the package"),
    ),
    ("sdk/typescript/README.md", "openSession", By("sdk/typescript/test/readme.test.ts", "first command")),
    ("sdk/typescript/README.md", "openShell", By("sdk/typescript/test/readme.test.ts", "kept shell")),
    (
        "sdk/typescript/README.md",
        "requestPermission, sessionUpdate",
        By("sdk/typescript/test/readme.test.ts", "terminal callbacks"),
    ),
    (
        "sdk/typescript/README.md",
        "getSessionShell",
        By("sdk/typescript/test/readme.test.ts", "a session's shell"),
    ),
    (
        "sdk/typescript/README.md",
        "pseudoterminal()",
        By("sdk/typescript/test/readme.test.ts", "a program in an editor"),
    ),
];

pub(crate) fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The fenced blocks of a page, in their order.
pub(crate) fn blocks(page: &str) -> Vec<String> {
    let (mut blocks, mut open): (Vec<String>, Option<String>) = (Vec::new(), None);
    for line in read(page).lines() {
        match (line.trim_start().starts_with("```"), open.take()) {
            (true, None) => open = Some(String::new()),
            (true, Some(block)) => blocks.push(block),
            (false, Some(block)) => open = Some(format!("{block}{line}\n")),
            (false, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block has no end");
    blocks
}

/// The block of a page that has this text.
pub(crate) fn block(page: &str, text: &str) -> String {
    let mut having = blocks(page).into_iter().filter(|block| block.contains(text));
    let block = having.next().unwrap_or_else(|| panic!("{page} has no block with {text:?}"));
    assert!(having.next().is_none(), "{page} has several blocks with {text:?}");
    block
}

/// Each line of a block that is a command, once handed to what runs it. A line that nobody knows fails.
pub(crate) fn lines(page: &str, text: &str) -> Vec<String> {
    let block = block(page, text);
    block.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

#[test]
fn every_block_of_a_page_is_held_by_a_test_or_says_why_not() {
    let mut wrong = Vec::new();
    for page in PAGES {
        for block in blocks(page) {
            let holds = |(on, text, _): &&(&str, &str, Held)| *on == page && block.contains(text);
            match BLOCKS.iter().filter(holds).count() {
                1 => {}
                count => wrong.push(format!("{page}: {count} entries for the block\n{block}")),
            }
        }
    }
    for (page, text, held) in &BLOCKS {
        let count = blocks(page).iter().filter(|block| block.contains(text)).count();
        if count != 1 {
            wrong.push(format!("{count} blocks of {page} have {text:?}"));
        }
        wrong.extend(must_be_there(held));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is missing, if it is held by a test that is not there.
pub(crate) fn must_be_there(held: &Held) -> Option<String> {
    let (file, name) = match held {
        By(file, name) => (file, name),
        Partly(file, name, why) => {
            assert!(!why.is_empty());
            (file, name)
        }
        Not(why) => {
            assert!(!why.is_empty());
            return None;
        }
    };
    let code = read(file);
    let forms = ["fn NAME(", "def NAME(", "test(\"NAME\""];
    let is_there = forms.iter().any(|form| code.contains(&form.replace("NAME", name)));
    (!is_there).then(|| format!("{file} has no test {name:?}"))
}
