"""An editor written with the official PyPI SDK:

    python editor.py REPORT KIND WORKSPACE SCENARIO,... COMMAND [ARG]...

It does what node/editor.mjs does."""

import asyncio
import json
import os
import sys

import acp
from acp import schema
from acp.helpers import text_block


class Editor:
    def __init__(self, workspace):
        self.workspace = workspace
        self.report = {"verdicts": {}, "permissions": [], "updates": [], "foreign": []}
        self.scenarios = {}

    def on_connect(self, agent):
        pass

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        params = {
            "scenario": self.scenarios[session_id],
            "sessionId": session_id,
            "toolCall": tool_call.model_dump(mode="json", by_alias=True, exclude_none=True),
            "options": [option.model_dump(mode="json", by_alias=True, exclude_none=True) for option in options],
        }
        self.report["permissions"].append(params)
        wanted = "reject" if self.scenarios[session_id] == "rejected" else "allow"
        option = next(option for option in options if option.kind.startswith(wanted))
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
        )

    async def session_update(self, session_id, update, **kwargs):
        dumped = update.model_dump(mode="json", by_alias=True, exclude_none=True)
        scenario = self.scenarios[session_id]
        self.report["updates"].append({"scenario": scenario, "sessionId": session_id, "update": dumped})
        if dumped.get("toolCallId") == "call-live" and "line 1" in json.dumps(dumped):
            open(os.path.join(self.workspace, scenario, "was-shown"), "w").close()
        if dumped["sessionUpdate"] == "agent_message_chunk":
            self.report["verdicts"][scenario] = dumped["content"]["text"]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        async def foreign(*args, **kwargs):
            self.report["foreign"].append(name)
            raise acp.RequestError.method_not_found(name)

        return foreign


async def main():
    report_file, kind, workspace, names, *command = sys.argv[1:]
    editor = Editor(workspace)
    capabilities = schema.ClientCapabilities(terminal=False)
    if kind == "streaming":
        capabilities = schema.ClientCapabilities(terminal=False, field_meta={"terminal_output": True})
    async with acp.spawn_agent_process(editor, *command, env=dict(os.environ)) as (agent, process):
        await agent.initialize(protocol_version=1, client_capabilities=capabilities)
        for name in names.split(","):
            cwd = os.path.join(workspace, name)
            os.makedirs(cwd, exist_ok=True)
            session = await agent.new_session(cwd=cwd, mcp_servers=[])
            editor.scenarios[session.session_id] = name
            answer = await agent.prompt(session_id=session.session_id, prompt=[text_block(name)])
            editor.report["stopReason"] = answer.stop_reason
            await agent.close_session(session_id=session.session_id)
    editor.report["status"] = process.returncode
    with open(report_file, "w") as file:
        json.dump(editor.report, file)


asyncio.run(main())
