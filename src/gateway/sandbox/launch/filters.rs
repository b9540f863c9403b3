//! Which filters a sandbox has: seccomp, landlock, and the gate that lives of the first.
//!
//! What the host lacks is an error or a shortfall, as the profile says. Starts nothing.

use std::path::PathBuf;

use crate::{
    network::{HTTP_PROXY_PORT, RESOLVER_PORT, SOCKS_PORT},
    policy::profile::{Network, Profile, Requirement},
    proto::supervisor::{ExecutablePaths, GatePlan, LandlockPlan, SeccompPlan, TcpPorts},
    sandbox::{
        cgroup::SandboxCgroup,
        host::Host,
        launch::error::LaunchError,
        probe::{CONNECTION_PROGRAMS, NO_TCP_DIAG},
        seccomp::{
            self, AnonymousPrograms,
            arch::Arch,
            notified::{ExecNonce, Listener},
        },
        spec::Shortfall,
    },
    sys::{landlock::ABI_WITH_TCP, random, seccomp::has_notify_action},
};

/// The gate lives of the filter.
pub(super) fn plan_gate(profile: &Profile, shortfalls: &mut Vec<Shortfall>) -> Result<GatePlan, LaunchError> {
    let missing = match (profile.gate.enabled, profile.seccomp.enabled, Arch::native()) {
        (false, _, _) => return Ok(GatePlan { enabled: false }),
        (true, true, Some(_)) if has_notify_action() => return Ok(GatePlan { enabled: true }),
        (true, true, Some(_)) => "the kernel does not notify of system calls",
        (true, false, _) => "the profile has no seccomp filter, which notifies the gate",
        (true, true, None) => "no filter is written for this processor",
    };
    record_missing("gate", missing.into(), profile.gate.requirement, shortfalls)?;
    Ok(GatePlan { enabled: false })
}

/// The filter for system calls, with what the gate is notified of, or without one the supervisor.
pub(super) fn plan_seccomp(
    profile: &Profile,
    gate: &GatePlan,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<SeccompPlan, LaunchError> {
    if !profile.seccomp.enabled {
        return Ok(SeccompPlan::default());
    }
    match Arch::native() {
        Some(machine) => {
            // Landlock knows files by their directories, and what memfd_create(2) makes is in none.
            let anonymous = match &profile.filesystem.execute {
                Some(_) => AnonymousPrograms::Refused,
                None => AnonymousPrograms::Allowed,
            };
            let nonce = ExecNonce::new(random::bytes().map_err(LaunchError::Random)?);
            let listener = match gate.enabled {
                true => Listener::Gate(&nonce),
                false => Listener::Supervisor(&nonce),
            };
            Ok(SeccompPlan {
                enabled: true,
                program: seccomp::program(machine, anonymous, listener).into(),
                exec_nonce: nonce.bytes().to_vec().into(),
            })
        }
        None => {
            let reason = "no filter is written for this processor".into();
            record_missing("seccomp", reason, profile.seccomp.requirement, shortfalls)?;
            Ok(SeccompPlan::default())
        }
    }
}

/// What landlock restricts beyond scopes: execution and TCP ports, where the profile lists them.
pub(super) fn plan_landlock(
    host: &Host,
    profile: &Profile,
    network: Network,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<LandlockPlan, LaunchError> {
    let enabled = profile.landlock.enabled && host.landlock_abi() > 0;
    if profile.landlock.enabled && !enabled {
        let reason = "the kernel does not offer it".into();
        record_missing("landlock", reason, profile.landlock.requirement, shortfalls)?;
    }
    if !enabled {
        return Ok(LandlockPlan::default());
    }
    let mut plan = LandlockPlan { enabled, ..LandlockPlan::default() };
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    plan.execute = profile
        .filesystem
        .execute
        .as_ref()
        .map(|paths| ExecutablePaths { paths: paths.iter().map(text).collect() });
    let ports = |list: &Option<Vec<u16>>| {
        list.as_ref().map(|ports| TcpPorts { ports: ports.iter().map(|port| u32::from(*port)).collect() })
    };
    let (connect, bind) = (ports(&profile.network.tcp_connect), ports(&profile.network.tcp_bind));
    if (connect.is_some() || bind.is_some()) && host.landlock_abi() < ABI_WITH_TCP {
        let reason = format!("the kernel's landlock has ABI {}, without TCP ports", host.landlock_abi());
        record_missing("landlock-tcp", reason, profile.landlock.requirement, shortfalls)?;
    } else {
        (plan.tcp_connect, plan.tcp_bind) = (connect, bind);
        // The list is about where to; the proxies and the resolver are the way there.
        if let (Network::Proxy, Some(connect)) = (network, &mut plan.tcp_connect) {
            connect.ports.extend([HTTP_PROXY_PORT, SOCKS_PORT, RESOLVER_PORT].map(u32::from));
        }
    }
    Ok(plan)
}

/// Why rules by program restrict more than they say.
pub(super) fn missing_of_programs(host: &Host, cgroup: &SandboxCgroup) -> Option<Shortfall> {
    const ALL: &str = "rules by program restrict every program";
    let reason = match (cgroup.path(), host.sees_descriptors(), host.finds_connections()) {
        (None, ..) => format!("without a v2 cgroup the processes of the sandbox are not known: {ALL}"),
        (_, false, _) => format!("without CAP_SYS_PTRACE their descriptors are not seen: {ALL}"),
        (.., false) => format!("{NO_TCP_DIAG}; beyond that, {ALL}"),
        (Some(_), true, true) => return None,
    };
    Some(Shortfall { protection: CONNECTION_PROGRAMS.into(), reason })
}

/// Records a missing protection: an error if the profile requires it, else a shortfall.
pub(super) fn record_missing(
    protection: &'static str,
    reason: String,
    requirement: Requirement,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<(), LaunchError> {
    match requirement {
        Requirement::Require => Err(LaunchError::Unavailable { protection, reason }),
        Requirement::Prefer => {
            shortfalls.push(Shortfall { protection: protection.into(), reason });
            Ok(())
        }
    }
}
