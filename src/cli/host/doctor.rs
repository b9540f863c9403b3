//! `provost doctor`: what this host offers, what it lacks, and how to get it.
//!
//! Shows what `sandbox` found, and what comes of a command of `provost run`, which it runs in the current directory. What is needed is the
//! compiled-in policy's word: of `provost run` by itself, which prefers resource limits, and of `provost serve`, which requires them of
//! root's gateway.
//!
//! What a host offers is known by many protections; whether a command starts is known by starting one. It is the code of `provost run`
//! itself, so that the two cannot say different things.

use std::path::{Path, PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser};
use nix::sys::statvfs::statvfs;
use serde::Serialize;

use super::prune::KeptCachesSection;
use crate::{
    cli::{
        console::{
            error::{CliError, PROVOST_FAILED},
            table::{align_columns, print_to_stdout, to_json_line},
        },
        request::{
            arguments::{DoctorArguments, OutputFormat, RunArguments, without_empty_variables},
            known_agents::{self, InstalledAgent},
        },
        run::run::run_confined,
    },
    gateway::{
        compiled_in_prefers_limits, default_state,
        quarantine::{self, Quarantined},
    },
    policy::{
        PolicySet,
        profile::{Layer, Profile, Requirement},
    },
    sandbox::{
        host::Host,
        probe::{self, Protection, ProtectionStatus},
    },
};

/// The exit status when nothing can run here.
const NOT_USABLE: u8 = 1;

/// Examines the host for this user.
pub(in crate::cli) async fn examine(arguments: &DoctorArguments) -> Result<u8, CliError> {
    let state = arguments.state.clone().unwrap_or_else(default_state);
    let left =
        quarantine::list(&state).map_err(|error| format!("{error}: {}", crate::printable::path(&state)));
    let journal = JournalSpace::below(&state);
    let report = HostReport {
        left: QuarantineSection::of(left),
        journal,
        agents: known_agents::find_installed(),
        kept_caches: KeptCachesSection::here(),
        ..HostReport::of(&probe::protections(&Host::detect()), &policy_of_serve()).tried(try_command().await?)
    };
    let shown =
        if arguments.output.output == OutputFormat::Json { to_json_line(&report)? } else { report.page() };
    let status = print_to_stdout(&shown)?;
    Ok(if report.usable { status } else { NOT_USABLE })
}

/// What `-o json` prints.
#[derive(Serialize)]
struct HostReport {
    /// Whether `provost run` works here.
    usable: bool,
    protections: Vec<ProtectionRow>,
    /// What came of a command; absent: none was tried.
    trial: Option<Trial>,
    /// What the last gateway here did not adopt.
    left: QuarantineSection,
    /// The journal in its state directory; absent: there is none, or it cannot be seen.
    journal: Option<JournalSpace>,
    /// The agents that are installed for this user.
    agents: Vec<InstalledAgent>,
    /// The caches that outlive their sessions.
    kept_caches: KeptCachesSection,
}

/// With less, the next records may not fit.
const LOW_SPACE_BYTES: u64 = 1 << 20;

/// Whether a journal can grow.
#[derive(Serialize)]
struct JournalSpace {
    directory: PathBuf,
    free_bytes: u64,
    is_full: bool,
}

impl JournalSpace {
    fn below(state: &Path) -> Option<Self> {
        let directory = state.join("journal");
        let found = statvfs(&directory).ok()?;
        let free_bytes = found.blocks_available().saturating_mul(found.fragment_size());
        Some(Self { directory, free_bytes, is_full: free_bytes < LOW_SPACE_BYTES })
    }

    fn page(&self) -> String {
        if !self.is_full {
            return String::new();
        }
        let Self { directory, free_bytes, .. } = self;
        format!(
            "\nThe journal in {} has room for {free_bytes} bytes: a gateway that cannot write it starts no command. \
             Make room; it goes on by itself.\n",
            crate::printable::path(directory)
        )
    }
}

/// What a gateway has left as it is.
#[derive(Default, Serialize)]
struct QuarantineSection {
    all: Vec<QuarantineRow>,
    /// Why it is not known.
    unknown: Option<String>,
}

#[derive(Serialize)]
struct QuarantineRow {
    kind: &'static str,
    id: String,
    reason: String,
}

impl QuarantineSection {
    fn of(listed: Result<Vec<Quarantined>, String>) -> Self {
        match listed {
            Ok(listed) => {
                let row = |one: Quarantined| QuarantineRow {
                    kind: one.kind.name(),
                    id: one.id,
                    reason: one.reason,
                };
                Self { all: listed.into_iter().map(row).collect(), unknown: None }
            }
            Err(unknown) => Self { all: Vec::new(), unknown: Some(unknown) },
        }
    }

    fn page(&self) -> String {
        let mut page = String::new();
        if let Some(unknown) = &self.unknown {
            page.push_str(&format!("\nWhat the gateway has left cannot be read: {unknown}\n"));
        }
        if !self.all.is_empty() {
            page.push_str(
                "\nLeft as it is by the last start of the gateway (`provost reap ID` ends and removes it):\n",
            );
        }
        for one in &self.all {
            page.push_str(&format!("  {} {}: {}\n", one.kind, one.id, one.reason));
        }
        page
    }
}

#[derive(Serialize)]
struct ProtectionRow {
    name: &'static str,
    state: &'static str,
    needed: Need,
    reason: String,
    remedy: String,
}

/// Who does not run a command without the protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Need {
    /// Nobody: without it something is weaker, and the receipt says so.
    Nobody,
    /// `provost serve` with the compiled-in policy, by this user.
    Serve,
    /// `provost run` by itself, and so everybody.
    Always,
}

impl HostReport {
    fn of(protections: &[Protection], serve: &PolicySet) -> Self {
        let run = PolicySet::compiled_in().preferring_limits();
        let is_needed = |set: &PolicySet, name: &str| {
            set.profile(None).is_none_or(|(_, profile)| requires(profile, name))
        };
        let need = |name: &str| match (is_needed(&run, name), is_needed(serve, name)) {
            (true, _) => Need::Always,
            (false, true) => Need::Serve,
            (false, false) => Need::Nobody,
        };
        let row = |one: &Protection| ProtectionRow {
            name: one.name,
            state: state(one.status),
            needed: need(one.name),
            reason: one.reason.clone(),
            remedy: one.remedy.clone(),
        };
        let is_lacking =
            |one: &Protection| one.status == ProtectionStatus::Missing && need(one.name) == Need::Always;
        Self {
            usable: !protections.iter().any(is_lacking),
            protections: protections.iter().map(row).collect(),
            trial: None,
            left: QuarantineSection::default(),
            journal: None,
            agents: Vec::new(),
            kept_caches: KeptCachesSection::default(),
        }
    }

    /// What a command came to is what a host is good for.
    fn tried(self, trial: Trial) -> Self {
        let usable = match &trial {
            Trial::Ran => true,
            Trial::Failed(_) => false,
            Trial::Refused(_) => self.usable,
        };
        Self { usable, trial: Some(trial), ..self }
    }

    fn page(&self) -> String {
        let mut rows = vec![["PROTECTION", "STATE", "NEEDED BY", "WHY"].map(str::to_owned)];
        rows.extend(self.protections.iter().map(|row| {
            let needed = match row.needed {
                Need::Nobody => "-",
                Need::Serve => "serve",
                Need::Always => "run, serve",
            };
            [row.name, row.state, needed, &row.reason].map(str::to_owned)
        }));
        let mut page = align_columns(&rows);
        let remedies = self.remedies();
        if !remedies.is_empty() {
            page.push_str("\nHow to get what is weaker or missing:\n");
        }
        for (remedy, names) in remedies {
            page.push_str(&format!("  {}: {remedy}\n", names.join(", ")));
        }
        page.push_str(&self.left.page());
        page.push_str(&self.journal.as_ref().map(JournalSpace::page).unwrap_or_default());
        page.push_str(&self.kept_caches.page());
        page.push_str(&self.verdict());
        if !self.agents.is_empty() {
            page.push_str(
                "\nAgents found here, and what to configure (docs/agents.md says what is covered):\n",
            );
        }
        for agent in &self.agents {
            page.push_str(&format!("  {}: {}\n", crate::printable::path(&agent.program), agent.configure));
        }
        page.push_str(&format!("\nNext: {}\n", self.next()));
        page
    }

    /// Each remedy once, with what it repairs, in the order of the table.
    fn remedies(&self) -> Vec<(&str, Vec<&str>)> {
        let mut remedies: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in self.protections.iter().filter(|row| !row.remedy.is_empty()) {
            match remedies.iter_mut().find(|(remedy, _)| *remedy == row.remedy) {
                Some((_, names)) => names.push(row.name),
                None => remedies.push((&row.remedy, vec![row.name])),
            }
        }
        remedies
    }

    /// The next thing to do.
    fn next(&self) -> &str {
        let lacking = |row: &&ProtectionRow| row.needed == Need::Always && row.state == "missing";
        match (
            self.protections.iter().find(lacking).filter(|_| !self.usable),
            self.journal.as_ref().is_some_and(|journal| journal.is_full),
        ) {
            (Some(row), _) if !row.remedy.is_empty() => &row.remedy,
            (Some(_), _) => "run Provost on a host that has the protection that is missing",
            (None, _) if !self.usable => "give this process what the line above says that it lacks",
            (None, true) => "make room for the journal",
            (None, false) if !self.left.all.is_empty() => "`provost reap ID`, for what was left as it is",
            (None, false) => match self.agents.first() {
                Some(agent) => &agent.configure,
                None => "provost run --receipt -- sh -c 'id; ls /'",
            },
        }
    }

    fn verdict(&self) -> String {
        let lacks = |need| self.protections.iter().any(|row| row.needed == need && row.state == "missing");
        let refused = match &self.trial {
            Some(Trial::Failed(message)) => {
                return format!("\nNo command runs here. `provost run -- true`: {message}\n");
            }
            Some(Trial::Refused(message)) => {
                format!("\n`provost run -- true` in this directory: {message}\n")
            }
            Some(Trial::Ran) | None => String::new(),
        };
        let verdict = if !self.usable {
            "\nNo command runs here: a protection that is always needed is missing.\n"
        } else if lacks(Need::Serve) {
            "\n`provost run` confines commands here. `provost serve` needs limits that are missing, or a policy \
             that prefers them.\n"
        } else {
            "\nCommands are confined here.\n"
        };
        refused + verdict
    }
}

/// The compiled-in policy, as this user's gateway has it.
fn policy_of_serve() -> PolicySet {
    let policy = PolicySet::compiled_in();
    if compiled_in_prefers_limits() { policy.preferring_limits() } else { policy }
}

/// Whether a profile refuses to run without a protection.
fn requires(profile: &Profile, protection: &str) -> bool {
    let demands = |layer: &Layer| layer.enabled && layer.requirement == Requirement::Require;
    match protection {
        "seccomp" => demands(&profile.seccomp),
        "landlock" => demands(&profile.landlock),
        "cgroup-memory" | "cgroup-pids" | "cgroup-cpu" => {
            let limits = [&profile.limits.terminal, &profile.limits.session];
            let is_set =
                |limit: fn(&crate::policy::profile::CgroupLimits) -> bool| limits.into_iter().any(limit);
            profile.limits.requirement == Requirement::Require
                && match protection {
                    "cgroup-memory" => is_set(|limits| limits.memory_bytes.is_some()),
                    "cgroup-pids" => is_set(|limits| limits.pids.is_some()),
                    _ => is_set(|limits| limits.cpu_millis.is_some()),
                }
        }
        // Without a group to kill by, a sandbox's PID 1 is killed instead, and with it the kernel kills all.
        "cgroup-v2" | "cgroup-kill" | "clone-into-cgroup" => false,
        // Tried where one is, which need not be where commands are to work.
        "id-mapped-mounts" => false,
        // Without it rules by program restrict more.
        "connection-programs" => false,
        _ => true,
    }
}

fn state(standing: ProtectionStatus) -> &'static str {
    match standing {
        ProtectionStatus::Available => "available",
        ProtectionStatus::Weaker => "weaker",
        ProtectionStatus::Missing => "missing",
    }
}

/// What came of the trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "result", content = "message")]
pub(super) enum Trial {
    /// A command ran.
    Ran,
    /// No command runs here.
    Failed(String),
    /// None runs in this directory, or by the policy here. What the host offers is not known by that.
    Refused(String),
}

/// `provost run` with its options as they are by themselves.
#[derive(Parser)]
struct TrialRun {
    #[command(flatten)]
    run: RunArguments,
}

/// Runs `true` as `provost run` does.
pub(super) async fn try_command() -> Result<Trial, CliError> {
    let words = ["provost", "--no-stdin", "--on-ask", "refuse", "--", "true"];
    // A variable of the environment can be at fault.
    let parsed = without_empty_variables(TrialRun::command())
        .try_get_matches_from(words)
        .and_then(|matches| TrialRun::from_arg_matches(&matches))
        .map_err(|error| CliError::caused_by("cannot try `provost run`", error))?;
    Ok(match run_confined(parsed.run).await {
        Ok(ended) if ended.exit_status == 0 => Trial::Ran,
        Ok(ended) => Trial::Failed(format!("`true` ended with {}", ended.exit_status)),
        Err(error) if error.exit_status != PROVOST_FAILED || error.is_of_field("roots") => {
            Trial::Refused(error.to_string())
        }
        Err(error) => Trial::Failed(error.without_advice().to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection(name: &'static str, standing: ProtectionStatus) -> Protection {
        Protection { name, status: standing, reason: "because".to_owned(), remedy: "fix it".to_owned() }
    }

    fn of_root(protections: &[Protection]) -> HostReport {
        HostReport::of(protections, &PolicySet::compiled_in())
    }

    #[test]
    fn limits_are_needed_by_roots_gateway_alone() {
        let lacking = [protection("cgroup-memory", ProtectionStatus::Missing)];
        let users = HostReport::of(&lacking, &PolicySet::compiled_in().preferring_limits());
        assert_eq!(users.protections[0].needed, Need::Nobody);
        assert!(users.page().contains("Commands are confined here"), "{}", users.page());
        assert_eq!(of_root(&lacking).protections[0].needed, Need::Serve);
    }

    #[test]
    fn a_missing_namespace_makes_a_host_unusable() {
        let report = of_root(&[protection("namespace-pid", ProtectionStatus::Missing)]);
        assert!(!report.usable);
        assert!(report.page().contains("No command runs here"), "{}", report.page());
        assert!(report.page().ends_with("\nNext: fix it\n"), "{}", report.page());
    }

    #[test]
    fn missing_limits_leave_run_usable_and_are_said() {
        let report = of_root(&[
            protection("namespace-pid", ProtectionStatus::Available),
            protection("cgroup-memory", ProtectionStatus::Missing),
        ]);
        assert!(report.usable);
        assert_eq!(report.protections[1].needed, Need::Serve);
        assert!(report.page().contains("fix it"), "{}", report.page());
        assert!(report.page().contains("`provost serve` needs limits"), "{}", report.page());
        assert!(report.page().contains("\nNext: provost run --receipt"), "{}", report.page());
    }

    #[test]
    fn what_is_not_known_here_is_needed() {
        let report = of_root(&[protection("a-protection-of-tomorrow", ProtectionStatus::Missing)]);
        assert!(!report.usable);
    }
}
