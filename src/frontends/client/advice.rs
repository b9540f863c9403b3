//! What an agent can do about a command that did not start: the same words in every front end.

/// What to do when policy has refused a command, by the gateway's reason.
pub fn advice_when_denied(reason: &str) -> &'static str {
    match reason {
        "APPROVAL_DENIED" => "do it another way, or ask the user what they would allow",
        "APPROVAL_EXPIRED" => "nobody answered in time; ask the user, then send it again",
        "APPROVAL_REQUIRED" => "a person must allow it first; ask the user, then send it again",
        _ => "do it another way, or ask the user to change the policy",
    }
}

/// What to do when a command could not be started, by the gateway's reason; empty if there is no advice.
pub fn advice_when_not_started(reason: &str) -> &'static str {
    match reason {
        "COMMAND_NOT_FOUND" => {
            "name a program that is installed in the sandbox, where only system directories and the workspace are"
        }
        "CWD_GONE" | "CWD_NOT_A_DIRECTORY" => "give the path of a directory in the workspace as cwd",
        "ARGUMENT_LIST_TOO_LONG" => "put long input into a file and pass its name",
        "CONFINEMENT_UNAVAILABLE" => {
            "nothing ran; the user can see what this host lacks with `provost doctor`"
        }
        "ROOT_GONE" => "the workspace was removed or replaced; open another session on it",
        "SANDBOX_LOST" => "the sandbox has ended with all that ran in it; try again",
        _ => "",
    }
}
