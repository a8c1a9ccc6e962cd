import asyncio
from agent_sandbox import AsyncSandbox

async def main():
    sandbox = await AsyncSandbox.create(template="base")
    try:
        result = await sandbox.commands.run("echo hello")
        print(result.stdout)
        await sandbox.files.write("/tmp/data.txt", "content")
        print(await sandbox.files.read("/tmp/data.txt"))
    finally:
        await sandbox.kill()

asyncio.run(main())
