// The part of three.js that pages contain; README.md says how it is bundled.
export {
  AmbientLight, BoxGeometry, BufferAttribute, BufferGeometry, CapsuleGeometry, Color, CylinderGeometry, DirectionalLight,
  DoubleSide, Group, HemisphereLight, IcosahedronGeometry, InstancedMesh, Line, LineBasicMaterial, Matrix4, Mesh,
  MeshLambertMaterial, OrthographicCamera, PerspectiveCamera, PlaneGeometry, Points, PointsMaterial, Quaternion, Scene,
  SphereGeometry, Vector3, WebGLRenderer,
} from "three";
export { OrbitControls } from "three/addons/controls/OrbitControls.js";
