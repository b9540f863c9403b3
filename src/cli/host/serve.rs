//! `provost serve`: the gateway as a service.
//!
//! Only puts the configuration together; what the gateway does is in `gateway`.

use std::{error::Error, io};

use tracing_subscriber::EnvFilter;

use crate::{
    cli::{
        console::{
            error::CliError,
            log_writer::{EscapedLog, LOG_VARIABLE},
        },
        request::arguments::ServeArguments,
    },
    gateway::{self, Config, PolicySource},
    stdio,
};

/// Serves until it is told to stop.
pub(in crate::cli) async fn serve(arguments: ServeArguments) -> Result<u8, CliError> {
    log_to_stderr()?;
    let config = configuration(arguments)?;
    gateway::serve(config).await.map_err(|error| CliError::caused_by("cannot serve", error))?;
    Ok(0)
}

/// The file's values, or the defaults, under the options'.
fn configuration(arguments: ServeArguments) -> Result<Config, CliError> {
    let mut config = match &arguments.config {
        Some(file) => {
            Config::load(file).map_err(|error| CliError::caused_by("cannot use the configuration", error))?
        }
        None => Config::default(),
    };
    if let Some(listen) = arguments.listen {
        config.listen = listen;
    }
    if let Some(state) = arguments.state {
        config.state = state;
    }
    if let Some(policies) = arguments.policies {
        config.policies = PolicySource::Directory(policies);
    }
    config.idle_exit = arguments.idle_exit;
    if let Some(cgroup) = arguments.cgroup {
        config.cgroup = Some(cgroup);
    }
    Ok(config)
}

fn log_to_stderr() -> Result<(), CliError> {
    let filter =
        EnvFilter::builder().with_env_var(LOG_VARIABLE).with_default_directive(tracing::Level::INFO.into());
    let filter = filter
        .from_env()
        .map_err(|error| CliError::caused_by(format!("cannot use ${LOG_VARIABLE}"), error))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| EscapedLog(stdio::Waiting(io::stderr())))
        // An escape of the log's own could not be told from one in a name.
        .with_ansi(false)
        .try_init()
        .map_err(|error: Box<dyn Error + Send + Sync>| {
            CliError::message_only(format!("cannot start logging: {error}"))
        })
}
