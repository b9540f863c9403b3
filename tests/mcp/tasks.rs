//! Commands as tasks, by the client of the official Rust SDK: asked how they go, answered, cancelled.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use rmcp::{
    ClientServiceExt as _, RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities, ClientConfig,
        DetailedTask, ErrorCode, GetTaskParams, Implementation, InputRequest, ProtocolVersion, Task,
        TaskPayload, TaskStatus, UpdateTaskParams,
    },
    service::{ClientLifecycleMode, RunningService},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{
    mcp::permission,
    support::{Gateway, within},
};

/// A client of the official SDK, and its server.
struct Client {
    service: RunningService<RoleClient, ClientConfig>,
    workspace: PathBuf,
    _server: Child,
    _directory: TempDir,
}

fn by_initialize() -> ClientLifecycleMode {
    ClientLifecycleMode::Initialize
}

fn by_discovery() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] }
}

fn knows_tasks() -> ClientCapabilities {
    ClientCapabilities::builder().enable_elicitation().enable_tasks().build()
}

impl Client {
    async fn at(
        gateway: &Gateway,
        options: &[&str],
        capabilities: ClientCapabilities,
        lifecycle: ClientLifecycleMode,
    ) -> Self {
        let directory =
            tempfile::Builder::new().prefix("provost-mcp-").tempdir().expect("a temporary directory");
        let workspace = directory.path().canonicalize().expect("it is there").join("workspace");
        fs::create_dir(&workspace).expect("a workspace");
        let mut server = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["mcp", "--gateway", &format!("unix:{}", gateway.socket.display()), "--root"])
            .arg(&workspace)
            .args(options)
            .env_remove("PROVOST_GATEWAY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("provost can be started");
        let pipes = (server.stdout.take().expect("it is piped"), server.stdin.take().expect("it is piped"));
        let config = ClientConfig::new(capabilities, Implementation::new("tester", "1"));
        let service = within("the handshake", config.serve_with_lifecycle(pipes, lifecycle)).await;
        let service = service.expect("the server speaks the protocol");
        Self { service, workspace, _server: server, _directory: directory }
    }

    async fn run(&self, command: &str) -> CallToolResponse {
        let arguments = json!({ "command": command }).as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new("run_command").with_arguments(arguments);
        within("the answer", self.service.call_tool_once(params)).await.expect("the call is answered")
    }

    /// Runs what is answered with a task.
    async fn begin(&self, command: &str) -> Task {
        match self.run(command).await {
            CallToolResponse::Task(created) => created.task,
            other => panic!("no task: {other:?}"),
        }
    }

    async fn get(&self, id: &str) -> Result<DetailedTask, ServiceError> {
        within("tasks/get", self.service.get_task(GetTaskParams::new(id))).await.map(|got| got.task)
    }

    /// Asks until the task has this status.
    async fn until(&self, task: &Task, status: TaskStatus) -> DetailedTask {
        let asking = async {
            loop {
                let now = self.get(&task.task_id).await.expect("there is a task");
                if now.status() == status {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within(&format!("{status:?}"), asking).await
    }

    /// The text of the result with which a task ends.
    async fn result(&self, task: &Task) -> (String, Value) {
        match self.until(task, TaskStatus::Completed).await.payload {
            TaskPayload::Completed { result } => {
                let result = Value::Object(result);
                (result["content"][0]["text"].as_str().unwrap_or_default().to_owned(), result)
            }
            other => panic!("not completed: {other:?}"),
        }
    }

    async fn answer(&self, task: &Task, key: &str, answer: Value) {
        let params = UpdateTaskParams::new(&task.task_id, [(key.to_owned(), answer)].into());
        within("tasks/update", self.service.update_task(params)).await.expect("the answer is taken");
    }

    async fn cancel(&self, task: &Task) {
        let params = CancelTaskParams::new(&task.task_id);
        within("tasks/cancel", self.service.cancel_task(params)).await.expect("it is acknowledged");
    }

    async fn list(&self) -> String {
        let listed = self.service.call_tool_once(CallToolRequestParams::new("list_commands"));
        match within("list_commands", listed).await.expect("the call is answered") {
            CallToolResponse::Complete(result) => {
                serde_json::to_value(&result.content).expect("it is JSON")[0]["text"].to_string()
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_takes_long_is_a_task_and_a_quick_one_is_answered_at_once() {
    let gateway = Gateway::start();
    for lifecycle in [by_initialize, by_discovery] {
        let client = Client::at(&gateway, &[], knows_tasks(), lifecycle()).await;
        // On a busy machine a command may not be quick.
        let answered = async {
            loop {
                if let CallToolResponse::Complete(quick) = client.run("echo quick; exit 3").await {
                    return serde_json::to_value(quick).expect("it is JSON");
                }
            }
        };
        let quick = within("an answer at once", answered).await;
        assert!(quick.to_string().contains("exit code 3") && quick.to_string().contains("quick"), "{quick}");

        let line = "echo begun; until [ -e go ]; do sleep 0.05; done; echo over; exit 4";
        let task = client.begin(line).await;
        let now = client.until(&task, TaskStatus::Working).await;
        assert_eq!((now.task.ttl_ms, now.task.poll_interval_ms), (None, Some(1_000)));
        // A gateway that is killed takes no command and no task with it.
        gateway.crash();
        gateway.start_again();
        fs::write(client.workspace.join("go"), "").expect("the workspace is ours");
        let (text, result) = client.result(&task).await;
        assert!(text.starts_with("exit code 4\n") && text.ends_with("begun\nover\n"), "{text}");
        assert_eq!(result["_meta"]["provost"]["exit_code"], 4);
        // It can be asked for again.
        assert_eq!(client.result(&task).await.1, result);
    }
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_stops_its_command_and_one_that_nobody_has_is_unknown() {
    let gateway = Gateway::start();
    let client = Client::at(&gateway, &[], knows_tasks(), by_discovery()).await;
    let task = client.begin("trap '' TERM; touch begun; while :; do sleep 0.1; done").await;
    within("the command", async {
        while !client.workspace.join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    client.cancel(&task).await;
    client.until(&task, TaskStatus::Cancelled).await;
    assert!(client.list().await.contains("There are no commands"), "{}", client.list().await);
    match client.get("task_none").await {
        Err(ServiceError::McpError(error)) => assert_eq!(error.code, ErrorCode::INVALID_PARAMS),
        other => panic!("{other:?}"),
    }
    // Who does not know tasks is not answered with one, and may not ask for one.
    let other = Client::at(&gateway, &[], ClientCapabilities::default(), by_discovery()).await;
    assert!(matches!(other.run("sleep 1.5").await, CallToolResponse::Complete(_)));
    assert!(other.get(&task.task_id).await.is_err());
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_rule_asks_is_asked_by_the_task_and_only_a_clear_yes_counts() {
    let gateway = permission::gateway(permission::rules);
    // Without the option nobody is asked by the client.
    let client = Client::at(&gateway, &[], knows_tasks(), by_discovery()).await;
    assert!(
        matches!(client.run("touch asked").await, CallToolResponse::Complete(result) if result.is_error == Some(true))
    );

    let client = Client::at(&gateway, &["--ask-client"], knows_tasks(), by_discovery()).await;
    let asked = client.workspace.join("asked");
    for no in [
        json!({ "action": "decline" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": { "approve": "true" } }),
        json!("yes"),
    ] {
        let task = client.begin("touch asked").await;
        let question = client.until(&task, TaskStatus::InputRequired).await;
        let TaskPayload::InputRequired { input_requests } = question.payload else { panic!("no question") };
        let (key, question) = input_requests.into_iter().next().expect("there is a question");
        assert!(matches!(question, InputRequest::Elicitation(_)), "{question:?}");
        let question = serde_json::to_string(&question).expect("it is JSON");
        assert!(question.contains("touch asked") && question.contains("it is asked about"), "{question}");
        client
            .answer(&task, "another key", json!({ "action": "accept", "content": { "approve": true } }))
            .await;
        client.answer(&task, &key, no.clone()).await;
        let (text, result) = client.result(&task).await;
        assert_eq!(result["isError"], true, "{no}: {text}");
        assert!(!asked.exists(), "{no}: {text}");
    }
    let task = client.begin("touch asked").await;
    client.until(&task, TaskStatus::InputRequired).await;
    client.cancel(&task).await;
    client.until(&task, TaskStatus::Cancelled).await;
    assert!(!asked.exists());

    let task = client.begin("touch asked").await;
    let TaskPayload::InputRequired { input_requests } =
        client.until(&task, TaskStatus::InputRequired).await.payload
    else {
        panic!("no question")
    };
    let key = input_requests.keys().next().expect("there is a question");
    client.answer(&task, key, json!({ "action": "accept", "content": { "approve": true } })).await;
    let (text, _) = client.result(&task).await;
    assert!(text.starts_with("exit code 0") && asked.exists(), "{text}");
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_no_requests_is_asked_by_the_answer_of_its_call() {
    let gateway = permission::gateway(permission::rules);
    let can_ask = ClientCapabilities::builder().enable_elicitation().build();
    let client = Client::at(&gateway, &["--ask-client"], can_ask, by_discovery()).await;
    let asked = client.workspace.join("asked");
    let yes = || json!({ "action": "accept", "content": { "approve": true } });
    for (command, answer, state, is_made) in [
        ("touch asked", json!({ "action": "decline" }), None, false),
        ("touch asked", yes(), Some("apr_none"), false),
        // A yes to one command is none to another.
        ("touch asked other", yes(), None, false),
        ("touch asked", yes(), None, true),
    ] {
        let CallToolResponse::InputRequired(question) = client.run("touch asked").await else {
            panic!("nobody is asked")
        };
        let (key, _) = question.input_requests.into_iter().flatten().next().expect("there is a question");
        let state = state.map(str::to_owned).or(question.request_state).expect("there is a state");
        let arguments = json!({ "command": command }).as_object().cloned().unwrap_or_default();
        let again = CallToolRequestParams::new("run_command")
            .with_arguments(arguments)
            .with_input_responses([(key, answer.clone())].into())
            .with_request_state(state);
        let answered = within("the answer", client.service.call_tool_once(again)).await.expect("an answer");
        assert_eq!(asked.exists(), is_made, "{command} {answer}: {answered:?}");
        assert!(!client.workspace.join("other").exists());
    }
    gateway.stop();
}
