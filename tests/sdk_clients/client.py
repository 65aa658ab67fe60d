"""An agent with the Python SDK: lists the tools, makes a call that is allowed and one that needs approval, and prints
what it saw as JSON. Arguments: protocol mode, address, key."""

import asyncio
import json
import sys

from mcp.client.client import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main(mode: str, url: str, key: str) -> None:
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {key}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:

            async def call(name: str, arguments: dict) -> dict:
                result = await client.call_tool(name, arguments)
                return {"isError": bool(result.is_error), "text": result.content[0].text}

            listed = await client.list_tools()
            seen = {
                "tools": [tool.name for tool in listed.tools],
                "allowed": await call("get_order", {"order_id": "A-17"}),
                "gated": await call("refund_order", {"order_id": "A-17", "amount_cents": 12000}),
            }
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
