//! Commands that the text of a page names, outside of its blocks: each is run by a test, or says why not.

use std::collections::BTreeSet;

use crate::{
    shown::{
        blocks::{Held, PAGES, must_be_there, read},
        readme::succeeded,
    },
    support::Person,
};
use Held::{By, Not};

const ACP_AGENTS: &str = "tests/acp/agents.rs";
const AGENTS: &str = "tests/shown/agents.rs";
const INSTALL: &str = "tests/shown/install.rs";
const KNOWN_AGENTS: &str = "tests/acp/known_agents.rs";
const MCP_PAGE: &str = "tests/mcp/page.rs";
const BY_HAND: Held =
    Not("its agent is started by hand; tests/acp/known_agents.rs holds the line that is printed");

/// Each of them, wherever it stands.
const SPANS: [(&str, Held); 27] = [
    (
        "SHELL=~/.local/bin/provost-shell",
        By(MCP_PAGE, "the_shell_that_the_page_shows_confines_the_lines_of_an_agent"),
    ),
    (
        "CLAUDE_CODE_SHELL_PREFIX=~/.local/bin/provost-shell",
        By("tests/mcp/shell_prefix.rs", "the_bash_tool_of_claude_code_runs_confined_by_the_prefix"),
    ),
    (
        "claude mcp add provost -- provost mcp --root DIR",
        By(MCP_PAGE, "the_commands_that_the_page_shows_give_claude_code_its_servers"),
    ),
    (
        "provost acp --agent NAME",
        By(KNOWN_AGENTS, "a_known_agent_is_started_by_its_name_and_an_unknown_one_is_refused_with_the_list"),
    ),
    ("provost acp --agent list", By(KNOWN_AGENTS, "the_table_of_agents_is_the_pages")),
    ("provost acp --agent opencode", By(ACP_AGENTS, "the_commands_of_opencode_run_confined_by_its_name")),
    ("provost acp -- AGENT", By(AGENTS, "the_rows_of_the_table_start_an_agent")),
    ("provost acp --offer-tools -- AGENT", By(AGENTS, "the_rows_of_the_table_start_an_agent")),
    ("provost acp --confine-agent -- AGENT", By(AGENTS, "the_rows_of_the_table_start_an_agent")),
    ("provost run -- COMMAND", By(AGENTS, "the_row_of_a_script_runs_a_command")),
    (
        "provost audit query --front-end shell",
        By(AGENTS, "what_an_agent_ran_by_its_shell_is_found_in_the_journal"),
    ),
    ("npm install -g @agentclientprotocol/claude-agent-acp", BY_HAND),
    ("npm install -g @google/gemini-cli", BY_HAND),
    ("npm install -g @qwen-code/qwen-code", BY_HAND),
    ("npm install -g opencode-ai", Not("tests/acp/agents.rs installs the part of it for this machine")),
    (
        "npm install -g @zed-industries/claude-code-acp",
        By(ACP_AGENTS, "the_commands_of_claude_code_run_confined"),
    ),
    ("pip install 'mistral-vibe<3'", By(ACP_AGENTS, "the_commands_of_mistral_vibe_run_confined")),
    (
        "provost policy check DIR",
        By("tests/shown/acp.rs", "a_confined_agent_starts_with_the_policy_of_the_page"),
    ),
    (
        "provost acp --policies DIR --profile mine -- AGENT",
        By("tests/shown/acp.rs", "a_confined_agent_starts_with_the_policy_of_the_page"),
    ),
    ("grpcurl -plaintext -unix SOCKET list", Not("tests/clients asks for the same by four libraries")),
    (
        "grpcurl -plaintext -unix /run/provost/provost.sock list",
        Not("tests/clients asks for the same by four libraries"),
    ),
    ("npm run build", Not("`.ci/sdk typescript` makes the same by `npm run generate` and packs it")),
    ("provost serve --policies DIR", Not("each gateway of a test is started so")),
    ("provost approvals approve", Not("it lacks what is approved; tests/approvals has the whole command")),
    ("provost man DIR", By(INSTALL, "the_program_prints_its_man_pages_and_completions")),
    ("provost completions bash", By(INSTALL, "the_program_prints_its_man_pages_and_completions")),
    ("provost audit verify", By(AGENTS, "what_an_agent_ran_by_its_shell_is_found_in_the_journal")),
];

/// The text between backticks, outside of blocks.
fn spans(page: &str) -> Vec<String> {
    let text = read(page);
    let outside = text.split("\n```").step_by(2);
    let quoted = outside.flat_map(|text| text.lines()).flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.map(str::to_owned).collect()
}

/// Whether it is meant to be run: not a program's or a subcommand's name alone.
fn is_command(span: &str) -> bool {
    let words = span.split_whitespace().count();
    let programs = ["provost", "claude", "npm", "pip", "grpcurl"];
    let program = span.split_whitespace().next().unwrap_or_default();
    (programs.contains(&program) && words >= 3)
        || span.starts_with("SHELL=")
        || span.starts_with("CLAUDE_CODE_SHELL_PREFIX=")
}

#[test]
fn every_command_in_the_text_is_held_by_a_test_or_says_why_not() {
    let mut wrong = Vec::new();
    let named: BTreeSet<String> = PAGES.iter().flat_map(|page| spans(page)).collect();
    for span in named.iter().filter(|span| is_command(span)) {
        // The beginning of one that is listed is a mention of it.
        if !SPANS.iter().any(|(listed, _)| listed.starts_with(span.as_str())) {
            wrong.push(format!("nothing is said of `{span}`"));
        }
    }
    for (span, held) in &SPANS {
        if !named.contains(*span) {
            wrong.push(format!("no page has `{span}`"));
        }
        wrong.extend(must_be_there(held));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_subcommand_that_the_text_names_is_there() {
    let person = Person::new();
    let named: BTreeSet<String> = PAGES.iter().flat_map(|page| spans(page)).collect();
    let words = |span: &String| span.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let subcommands: BTreeSet<String> = named
        .iter()
        .map(words)
        .filter(|words| words.first().is_some_and(|word| word == "provost"))
        .filter_map(|words| words.get(1).filter(|word| !word.starts_with('-')).cloned())
        .collect();
    assert!(subcommands.len() > 8, "{subcommands:?}");
    for subcommand in subcommands {
        succeeded(&mut person.shell(&format!("provost {subcommand} --help")));
    }
}
